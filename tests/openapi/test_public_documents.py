"""Large documents of public APIs, as a package ships them: every operation is found, shown and called by an example."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.openapi.documents import decoded, public_document
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.documents import parse
from xapi_cli.openapi.example import example
from xapi_cli.openapi.index import Index, IndexInfo, encode
from xapi_cli.openapi.routes import Routes
from xapi_cli.request import items
from xapi_cli.system.private_files import StateDirectory

BASE = "https://api.test"


def load(name: str) -> tuple[Compiler, bytes]:
    path = public_document(name)
    compiler = Compiler(parse(path.read_bytes(), path.name), BASE)
    operations = compiler.operations()
    info = IndexInfo(compiler.title, compiler.server_path(), name, BASE, compiler.other_server_paths())
    return compiler, encode(info, operations)


def examples(index: Index) -> list[list[str]]:
    """The arguments of the example for each operation."""
    routes = Routes(index, "")
    return [example(index.operation(entry), routes.path(entry))[2:] for entry in index.entries]


@pytest.mark.parametrize(
    ("name", "title", "count"),
    [
        ("openai/official/openapi.yml", "OpenAI API", 200),
        ("openai/azure-preview/openapi.json", "Azure OpenAI Service API", 50),
        ("anthropic/official/openapi.yml", "Anthropic API", 40),
        ("cohere/official/openapi.yml", "API Reference", 40),
    ],
)
def test_the_example_of_every_operation_of_a_public_api_is_valid_and_can_be_pasted(
    tmp_path: Path, name: str, title: str, count: int
) -> None:
    compiler, data = load(name)
    index = decoded(data)
    index_file.write(StateDirectory(tmp_path), "p", data, b"")
    routes, calls = Routes(index, ""), examples(index)

    assert compiler.title.startswith(title)
    assert len(calls) >= count
    assert (compiler.skipped, compiler.truncated, compiler.is_partial) == (0, 0, False)
    for entry, words in zip(index.entries, calls, strict=True):
        assert entry in routes.find(routes.path(entry))
        items.parse(items.split_arguments([word for word in words if word not in ("-d", "@FILE", "--form")])[2])
    pasted = "".join(f"print {shlex.join(words)}\n" for words in calls)
    shown = subprocess.run(
        ["bash", "--norc"],
        input=f"print() {{ printf '<%s>' \"$@\"; echo; }}\n{pasted}",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout.splitlines() == ["".join(f"<{word}>" for word in words) for words in calls]


def test_details_of_an_operation_of_a_public_api() -> None:
    index = decoded(load("openai/official/openapi.yml")[1])
    (entry,) = [each for each in index.entries if (each.method, each.path) == ("POST", "/embeddings")]

    operation = index.operation(entry)

    assert index.info.server_path == "/v1"
    assert operation.body is not None
    assert (operation.body.media_type, operation.body.required) == ("application/json", True)
    assert {"input", "model"} <= {each.name for each in operation.parameters_in("body") if each.required}
    (encoding,) = [each for each in operation.parameters_in("body") if each.name == "encoding_format"]
    assert list(encoding.values) == ["float", "base64"]
