"""`xapi api list` and `xapi api show`, and the descriptions of profiles."""

import json
import os
import shlex

import pytest

from tests.commands.api import bearing
from tests.commands.descriptions import NOTHING_LOADED, load
from tests.openapi.documents import SWAGGER, openapi, public_document
from tests.support.program import REAL, Outcome, Xapi
from tests.support.servers import Server
from xapi_cli.sandbox import Sandbox


def test_list_filters_by_a_word(xapi: Xapi) -> None:
    load(xapi)

    assert xapi("api", "list", "PHOTO") == Outcome(0, "POST\t/v2/pets/{id}/photo\t\n")
    assert xapi("api", "list", "find") == Outcome(0, "GET\t/v2/pets/{id}\tFind a pet\n")
    assert xapi("api", "list", "x\x1b") == Outcome(0, "", "xapi: no operation contains x\\x1b\n")


def test_list_prints_json(xapi: Xapi) -> None:
    load(xapi)

    assert json.loads(xapi("api", "list", "find", "--json").out) == [
        {"method": "GET", "path": "/v2/pets/{id}", "summary": "Find a pet"}
    ]


def test_list_is_a_table_on_a_terminal(xapi: Xapi) -> None:
    load(xapi)

    with xapi.on_terminal("api", "list") as terminal:
        assert terminal.wait() == 0
        assert "METHOD  PATH                 SUMMARY\r\nGET     /v2/pets/{id}        Find a pet\r\n" in terminal.text


def test_paths_are_relative_to_the_base_url(xapi: Xapi) -> None:
    load(xapi)

    assert xapi("api", "list", "find", env={"XAPI_BASE_URL": "https://api.test/v2"}).out.startswith("GET\t/pets/{id}\t")


def test_show_prints_an_operation(xapi: Xapi) -> None:
    load(xapi)

    assert xapi("api", "show", "put", "/v2/pets/7") == Outcome(
        0,
        """\
PUT /v2/pets/{id}
  (deprecated)

Path parameters
  id  integer, required

Body (application/json, object, required)
  name  string, required
      its name
  tags  array of string
      one of: cat, dog

Example
  xapi request PUT /v2/pets/1 name=NAME
""",
    )


def test_show_prints_all_methods_of_a_path(xapi: Xapi) -> None:
    load(xapi)

    shown = xapi("api", "show", "v2/pets/{id}")

    assert [line for line in shown.out.splitlines() if line.endswith("/pets/{id}")] == [
        "GET /v2/pets/{id}",
        "PUT /v2/pets/{id}",
    ]


def test_show_prints_json(xapi: Xapi) -> None:
    load(xapi)

    (shown,) = json.loads(xapi("api", "show", "GET", "/v2/pets/{id}", "--json").out)

    assert shown["parameters"][1] == {
        "in": "query",
        "name": "view",
        "type": "string",
        "required": True,
        "values": ["short", "full"],
        "description": "",
    }
    assert (shown["body"], shown["example"]) == (None, "xapi request /v2/pets/1 view==short")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["/v2/pet/7"], "the API description has no path /v2/pet/7; did you mean /v2/pets/7?"),
        (["/pets/7"], "the API description has no path /pets/7; did you mean /v2/pets/7?"),
        (["/x\x1b"], "the API description has no path /x\\x1b; see `xapi api list`"),
        (["DELETE", "/v2/pets/7"], "DELETE is not listed for /v2/pets/7 in the API description; it lists GET, PUT"),
        (["G-T", "/v2/pets/7"], "a METHOD consists of letters only; write for example GET or POST"),
        (["GET"], "missing PATH after GET; write `xapi request GET /path` (for a path named GET: /GET)"),
        (["GET", "/a", "/b"], "too many arguments; write for example: xapi api show POST /x-api/echo"),
    ],
)
def test_an_operation_that_does_not_exist_is_a_usage_error(xapi: Xapi, arguments: list[str], error: str) -> None:
    load(xapi)

    assert xapi("api", "show", *arguments) == Outcome(2, "", f"xapi: error: {error}\n")


def test_long_texts_are_cut_for_readers_and_whole_for_scripts(xapi: Xapi) -> None:
    summary, text = "s" * 2000, ("line " * 6000).rstrip()
    limit = {"name": "limit", "in": "query", "description": text, "schema": {"type": "integer"}}
    node = {"summary": summary, "description": text, "parameters": [limit], "responses": {"200": {"description": text}}}
    load(xapi, openapi({"/a": {"get": node}, "/b": {"get": {"description": text}}}))

    (shown,) = json.loads(xapi("api", "show", "GET", "/a", "--json").out)
    listed = json.loads(xapi("api", "list", "--json").out)
    words = xapi("api", "show", "GET", "/a").out.split()

    assert (shown["summary"], shown["description"]) == (summary, text)
    assert shown["parameters"][0]["description"] == text
    assert shown["responses"][0]["description"] == text[:999] + "…"  # an operation has 64,000 characters
    assert [each["summary"] for each in listed] == [summary, text[:119] + "…"]
    assert words.count("line") == 3 * 199
    assert words.count("line…") == 3


def test_a_hint_names_the_profile_of_the_command(xapi: Xapi) -> None:
    load(xapi, XAPI_PROFILE="default")
    assert xapi("profile", "set", "base_url", "http://127.0.0.1:1", "-p", "gh").code == 0
    assert xapi("api", "load", "api.json", "-p", "gh").code == 0

    shown = xapi("api", "show", "/x", "-p", "gh")
    requested = xapi("request", "/x", "--curl", "-p", "gh", env={"XAPI_TOKEN": "t"})
    incomplete = xapi("request", "/v2/pets/7", "--curl", "-p", "gh", env={"XAPI_TOKEN": "t"})

    assert shown.err.endswith("; see `xapi api list --profile gh`\n")
    assert requested.err.endswith("; see `xapi api list --profile gh`\n")
    assert incomplete.err.endswith("; see `xapi api show --profile gh GET /v2/pets/{id}`\n")


@pytest.mark.parametrize("arguments", [["list"], ["show", "/v2/pets/{id}"]])
def test_a_description_of_another_base_url_is_noted(xapi: Xapi, arguments: list[str]) -> None:
    load(xapi, XAPI_BASE_URL="https://one.test")

    same = xapi("api", *arguments, env={"XAPI_BASE_URL": "https://one.test"})
    other = xapi("api", *arguments, env={"XAPI_BASE_URL": "https://two.test"})

    assert same.err == ""
    assert (other.code, other.out) == (0, same.out)
    assert other.err == (
        "xapi: the API description was loaded for https://one.test, not for https://two.test; "
        "run `xapi api load` again\n"
    )


@pytest.mark.parametrize("arguments", [["list"], ["show", "/a"]])
def test_without_an_index_the_error_names_the_command(xapi: Xapi, arguments: list[str]) -> None:
    assert xapi("api", *arguments) == Outcome(2, "", NOTHING_LOADED)


def test_a_damaged_index_is_one_error(xapi: Xapi) -> None:
    load(xapi)
    path = xapi.state / "api" / "default"
    path.write_bytes(path.read_bytes()[:-200])
    error = "xapi: error: the API description of profile default cannot be used: {}; run `xapi api load` again\n"
    assert xapi("api", "show", "POST", "/v2/pets/7/photo") == Outcome(2, "", error.format("it is damaged"))

    path.write_bytes(b"\xff")
    assert xapi("api", "list") == Outcome(2, "", error.format("it is damaged"))

    path.write_bytes(b"xapi-api 2 70 12345\n")
    assert xapi("api", "list") == Outcome(2, "", error.format("it was written by another version of xapi"))


def test_control_characters_of_a_document_reach_no_output(xapi: Xapi) -> None:
    hostile = "a\x1b[31m\u202e\u0085b"
    node = {"summary": hostile, "parameters": [{"name": hostile, "in": "query", "required": True}]}
    load(xapi, openapi({f"/{hostile}": {"get": node}}))

    for arguments in (["list"], ["show", f"/{hostile}".replace("\x1b", "\\x1b")], ["list", "--json"]):
        shown = xapi("api", *arguments)
        assert (shown.out + shown.err).replace("\n", "").replace("\t", "").isprintable()
    listed = xapi("api", "list").out
    assert listed.startswith("GET\t/a\\x1b[31m\\u202e")


def test_nothing_in_a_document_is_executed(xapi: Xapi) -> None:
    name = "$(touch pwned)`touch pwned`;'\"|"
    node = {"summary": name, "parameters": [{"name": name, "in": "query", "required": True}]}
    load(xapi, openapi({f"/{name}": {"get": node}}))

    shown = xapi("api", "show", "GET", f"/{name}").out

    example = shown.rpartition("Example\n")[2].strip()
    assert shlex.split(example) == ["xapi", "request", f"/{name}", f"{name}==TOUCH_PWNED_TOUCH_PWNED"]
    assert not (xapi.home / "pwned").exists()


def test_an_example_does_not_change_where_a_request_is_sent_or_written(xapi: Xapi, sandbox: Sandbox) -> None:
    (xapi.home / "FILE").write_text("{}")
    with Server() as evil:
        options = {"--base-url": evil.url, "--output": ".bashrc", "-opwned": "x"}
        parameters = [
            {"name": name, "in": place, "required": True, "schema": {"enum": [value]}}
            for name, value in options.items()
            for place in ("query", "header")
        ]
        fields = {name: {"enum": [value]} for name, value in options.items()}
        schema = {"required": list(fields), "properties": fields}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        load(xapi, openapi({"/x-api/echo": {"post": {"parameters": parameters, "requestBody": body}}}))
        (shown,) = json.loads(xapi("api", "show", "POST", "/x-api/echo", "--json").out)
        program, *words = shlex.split(shown["example"])
        files = set(xapi.home.iterdir())

        outcome = xapi(*words, env=bearing(sandbox))

        assert program == "xapi"
        assert (outcome.code, outcome.err) == (0, "")
        assert evil.received == []
    assert set(xapi.home.iterdir()) == files
    assert json.loads(outcome.out)["query"] == [list(option) for option in options.items()]


# profiles


def test_each_profile_has_its_own_description(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.a]\ntimeout = 5\n[profiles.b]\n")
    load(xapi, SWAGGER, XAPI_PROFILE="a")

    assert xapi("api", "list", "-p", "a").code == 0
    assert "no API description is loaded for profile b" in xapi("api", "list", "-p", "b").err


def test_removing_a_profile_deletes_its_description(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.a]\ntimeout = 5\n")
    load(xapi, SWAGGER, XAPI_PROFILE="a")

    assert xapi("profile", "remove", "a").code == 0
    assert list((xapi.state / "api").iterdir()) == []


def test_a_logout_keeps_the_description(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    load(xapi, SWAGGER, **sandbox.settings)

    assert xapi("logout", env=sandbox.settings).code == 0
    assert xapi("api", "list", env=sandbox.settings).code == 0


# startup


def test_loading_json_and_listing_import_neither_yaml_nor_httpx(xapi: Xapi) -> None:
    path = public_document("openai/azure-preview/openapi.json")
    for arguments in (["load", os.fspath(path)], ["list"], ["show", "/completions"]):
        process = xapi.start("api", *arguments, argv=REAL, env={"PYTHONPROFILEIMPORTTIME": "1"})
        imported = process.communicate(timeout=60)[1].decode()
        assert "xapi_cli.openapi" in imported
        assert not [name for name in ("| yaml\n", "httpx\n", "keyring\n", "tomlkit\n") if name in imported]
