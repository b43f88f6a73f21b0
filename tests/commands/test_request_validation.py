"""`xapi request` warns of a request that differs from the API description, and sends it in any case."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.commands.api import bearing
from tests.openapi.documents import SWAGGER, as_bytes, openapi
from tests.support.program import Outcome, Xapi
from xapi_cli.sandbox import Sandbox


def load(xapi: Xapi, document: Any = SWAGGER) -> None:
    (xapi.home / "api.json").write_bytes(as_bytes(document))
    assert xapi("api", "load", "api.json").code == 0


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ("/v2/pets/7 view==full", None),
        ("/v2/pets/7?view=full", None),
        ("HEAD /v2/pets/7", None),
        ("PUT /v2/pets/7 -d {}", None),
        ("PUT /v2/pets/7 name=x", None),
        ("PUT /v2/pets/7 name[first]=x", None),
        ("/v2/pets/7/photo photo@api.json", None),
        (
            "/v2/pets/7",
            "the request lacks view==, which the API description requires; see `xapi api show GET /v2/pets/{id}`",
        ),
        (
            "PUT /v2/pets/7 tags:=[]",
            "the request lacks name=, which the API description requires; see `xapi api show PUT /v2/pets/{id}`",
        ),
        ("/v2/pet/7", "the API description has no path /v2/pet/7; did you mean /v2/pets/7?"),
        ("/v2/pet/{id}/ü", "the API description has no path /v2/pet/{id}/ü; see `xapi api list`"),
        ("/v2/x/a%2Fb", "the API description has no path /v2/x/a%2Fb; see `xapi api list`"),
        ("/v2/x/y/z/1", "the API description has no path /v2/x/y/z/1; see `xapi api list`"),
        ("DELETE /v2/pets/7", "DELETE is not listed for /v2/pets/7 in the API description; it lists GET, PUT"),
    ],
)
def test_a_difference_is_one_warning(xapi: Xapi, arguments: str, warning: str | None) -> None:
    load(xapi)
    env = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"}

    shown = xapi("request", "--quiet", "--curl", *arguments.split(), env=env)

    assert shown.code == 0
    assert "curl " in shown.out
    assert shown.err == (f"xapi: warning: {warning}\n" if warning else "")


@pytest.mark.parametrize("other", ["https://staging.test", "https://api.test/v2", "http://api.test"])
def test_a_request_to_another_base_url_is_not_compared(xapi: Xapi, other: str) -> None:
    (xapi.home / "api.json").write_bytes(as_bytes(SWAGGER))
    env = {"XAPI_TOKEN": "t"}
    assert xapi("api", "load", "api.json", "--base-url", "https://API.test/").code == 0

    warned = xapi("request", "--curl", "/x", "--base-url", "https://api.test", env=env)
    shown = xapi("request", "--curl", "/x", "--base-url", other, env=env)

    assert "warning: the API description has no path /x" in warned.err
    assert (shown.code, "API description" in shown.err) == (0, False)


@pytest.mark.parametrize(
    ("base_url", "path", "suggestion"),
    [("https://api.test", "/pets/7", "/v2/pets/7"), ("https://api.test/v2", "/v2/pets/7", "/pets/7")],
)
def test_a_path_without_the_server_path_gets_a_suggestion(
    xapi: Xapi, base_url: str, path: str, suggestion: str
) -> None:
    load(xapi)

    shown = xapi("request", "--curl", path, env={"XAPI_BASE_URL": base_url, "XAPI_TOKEN": "t"})

    assert f"warning: the API description has no path {path}; did you mean {suggestion}?\n" in shown.err


def test_a_placeholder_is_reported(xapi: Xapi) -> None:
    load(xapi)
    env = {"XAPI_BASE_URL": "https://api.test/v2", "XAPI_TOKEN": "t"}

    assert xapi("request", "--curl", "/pets/{id}", env=env).err == (
        "xapi: warning: PATH contains {id}, a placeholder of the API description; replace it with a value\n"
    )


def test_the_request_is_sent_in_any_case(xapi: Xapi, sandbox: Sandbox) -> None:
    load(xapi, openapi({"/x-api/you": {"get": {}}}))

    shown = xapi("request", "/x-api/me", env=bearing(sandbox))

    assert (shown.code, shown.err) == (
        0,
        "xapi: warning: the API description has no path /x-api/me; see `xapi api list`\n",
    )
    assert '"email":"master@example.com"' in shown.out


@pytest.mark.parametrize("how", ["flag", "variable", "profile"])
def test_the_warnings_can_be_switched_off(xapi: Xapi, sandbox: Sandbox, how: str) -> None:
    load(xapi, openapi({"/a": {"get": {}}}))
    if how == "profile":
        assert xapi("profile", "set", "no_validate", "true").code == 0
    env = {"XAPI_NO_VALIDATE": "1"} if how == "variable" else {}

    shown = xapi("request", "/x-api/me", *(["--no-validate"] if how == "flag" else []), env=bearing(sandbox) | env)

    assert (shown.code, shown.err) == (0, "")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"x", "it is damaged"),
        (lambda data: data[:-1], "it is damaged"),
        (lambda data: data[:20], "it is damaged"),
        (lambda data: data + b"x", "it is damaged"),
        (lambda data: b"", "it is damaged"),
        (lambda data: data.replace(b"xapi-api 5", b"xapi-api 4"), "it was written by another version of xapi"),
    ],
)
def test_a_damaged_index_is_a_warning(
    xapi: Xapi, sandbox: Sandbox, damage: Callable[[bytes], bytes], reason: str
) -> None:
    load(xapi)
    path = xapi.state / "api" / "default"
    path.write_bytes(damage(path.read_bytes()))

    shown = xapi("request", "/x-api/me", env=bearing(sandbox))

    assert shown == Outcome(
        0,
        shown.out,
        f"xapi: warning: the API description of profile default cannot be used: {reason}; "
        "run `xapi api load` again, or use --no-validate\n",
    )
    assert "email" in shown.out


def test_a_state_directory_with_a_name_that_is_too_long_does_not_prevent_the_request(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    state = str(xapi.home / ("x" * 300))
    for options in ([], ["--no-validate"]):
        shown = xapi("request", *options, "/x-api/me", env={**bearing(sandbox), "XAPI_STATE_DIR": state})
        assert (shown.code, "email" in shown.out, shown.err) == (0, True, "")


def test_an_error_in_the_check_itself_is_a_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    load(xapi, openapi({"/x-api/me": {"get": {"parameters": [{"name": "a", "in": "header", "required": True}]}}}))
    path = xapi.state / "api" / "default"
    path.write_bytes(path.read_bytes().replace(b'"a"', b"123"))

    shown = xapi("request", "/x-api/me", env=bearing(sandbox))

    assert (shown.code, "email" in shown.out) == (0, True)
    assert shown.err.startswith("xapi: warning: the API description of profile default cannot be used: it is damaged;")


def test_what_the_request_contains_in_another_form_is_not_missing(xapi: Xapi) -> None:
    names = ("Accept", "Accept-Encoding", "User-Agent", "Host", "Content-Type", "Authorization")
    headers = [{"name": name, "in": "header", "required": True} for name in names]
    query = {"name": "filter", "in": "query", "required": True}
    schema = {"required": ["ids[]"], "properties": {"ids[]": {"type": "string"}}}
    body = {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}}
    item = {"parameters": [*headers, query], "get": {}}
    load(
        xapi,
        openapi({"/a": item, "/b": {"post": {"requestBody": body}}, "/v/{n}": {"get": {}}, "/v/{n}:x": {"post": {}}}),
    )
    env = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"}

    for arguments in ("/a filter[status]==x", "--form /b ids[]=1", "POST /v/1:x", "GET /v/1"):
        assert xapi("request", "--curl", "--quiet", *arguments.split(), env=env).err == ""
