"""Large documents of public APIs, as a package ships them: every operation is found, shown and called by an example."""

import pytest

from tests.openapi.documents import decoded, public_document
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.documents import parse
from xapi_cli.openapi.example import example
from xapi_cli.openapi.index import Index, IndexInfo, encode
from xapi_cli.openapi.routes import Routes
from xapi_cli.request import items


def load(name: str) -> tuple[Compiler, Index]:
    path = public_document(name)
    compiler = Compiler(parse(path.read_bytes(), path.name))
    return compiler, decoded(encode(IndexInfo(compiler.title, compiler.server_path(), name), compiler.operations()))


@pytest.mark.parametrize(
    ("name", "title", "count"),
    [
        ("openai/official/openapi.yml", "OpenAI API", 200),
        ("openai/azure-preview/openapi.json", "Azure OpenAI Service API", 50),
        ("anthropic/official/openapi.yml", "Anthropic API", 40),
        ("cohere/official/openapi.yml", "API Reference", 40),
    ],
)
def test_every_operation_of_a_public_api_is_found_by_its_example(name: str, title: str, count: int) -> None:
    compiler, index = load(name)
    routes = Routes(index, "")

    assert compiler.title.startswith(title)
    assert len(index.entries) >= count
    assert (compiler.skipped, compiler.truncated) == (0, 0)
    for entry in index.entries:
        operation = index.operation(entry)
        words = [word for word in example(operation, routes.path(entry))[2:] if word not in ("-d", "@FILE", "--form")]
        method, path, rest = items.split_arguments(words)
        items.parse(rest)
        assert entry in routes.find(path), (entry, path)
        assert method in (None, entry.method)


def test_details_of_an_operation_of_a_public_api() -> None:
    _, index = load("openai/official/openapi.yml")
    (entry,) = [each for each in index.entries if (each.method, each.path) == ("POST", "/embeddings")]

    operation = index.operation(entry)

    assert index.info.server_path == "/v1"
    assert operation.body is not None
    assert (operation.body.media_type, operation.body.required) == ("application/json", True)
    assert {"input", "model"} <= {each.name for each in operation.parameters_in("body") if each.required}
    (encoding,) = [each for each in operation.parameters_in("body") if each.name == "encoding_format"]
    assert list(encoding.values) == ["float", "base64"]
