"""What the shell gets for the arguments of `xapi request`, from the index of the API description."""

from typing import Any

import pytest

from tests.openapi.documents import SWAGGER, as_bytes, openapi
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, close

SHELLS = ("bash", "zsh", "fish", "powershell")
METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]


def load(xapi: Xapi, document: Any = SWAGGER, **env: str) -> None:
    (xapi.home / "api.json").write_bytes(as_bytes(document))
    assert xapi("api", "load", "api.json", env=env).code == 0


def complete(xapi: Xapi, line: str, shell: str = "bash", **env: str) -> Outcome:
    request = {
        "_XAPI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": line.rpartition(" ")[2],
    }
    return xapi(env=request | env)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("xapi request ", [*METHODS, "/v2/pets/{id}", "/v2/pets/{id}/photo"]),
        ("xapi request P", ["PATCH", "POST", "PUT"]),
        ("xapi request /v2/pets/7", ["/v2/pets/7", "/v2/pets/7/photo"]),
        ("xapi request POST /v2/", ["/v2/pets/{id}/photo"]),
        ("xapi request PUT /v2/pets/7 ", ["name=", "tags:="]),
        ("xapi request PUT /v2/pets/7 n", ["name="]),
        ("xapi request PUT /v2/pets/7 name=x ", ["tags:="]),
        ("xapi request PUT /v2/pets/7 tags:=", [":nothing 0"]),
        ("xapi request /v2/pets/7 ", ["view==", "X-Trace:"]),
        ("xapi request /v2/pets/7?a=b v", ["view=="]),
        ("xapi request /v2/pets/7 view==", ["view==short", "view==full"]),
        ("xapi request /v2/pets/7 view==f", ["view==full"]),
        ("xapi request /v2/pets/7/photo ", ["caption=", "photo@"]),
        ("xapi request --base-url https://api.test/v2 /pets/7/", ["/pets/7/photo"]),
        ("xapi api show PUT /v2/", ["/v2/pets/{id}"]),
        ("xapi request /v2/pets/7 -H X", ["X-Trace:"]),
        ("xapi request -H X-Trace:1 /v2/pets/7 ", ["view=="]),
    ],
)
def test_paths_items_and_values_complete(xapi: Xapi, line: str, words: list[str]) -> None:
    load(xapi)

    assert complete(xapi, line) == Outcome(0, "\n".join(words) + "\n")


@pytest.mark.parametrize(
    ("line", "after", "words"),
    [
        ("xapi request ", " /v2/pets/7", ["GET", "PUT"]),
        ("xapi request P", " /v2/pets/{id} name=x", ["PUT"]),
        ("xapi request P", " /v2/pets/7/photo?x=1", ["POST"]),
        ("xapi request D", " /v2/pets/7", []),
        ("xapi request P", " /v2/unknown", ["PATCH", "POST", "PUT"]),
        ("xapi request P", " --form", ["PATCH", "POST", "PUT"]),
        ("xapi request P", "UT /v2/pets/7", ["PATCH", "POST", "PUT"]),
        ("xapi api show ", " /v2/pets/{id}", ["GET", "PUT"]),
    ],
)
def test_only_the_methods_of_the_path_after_the_cursor_complete(
    xapi: Xapi, line: str, after: str, words: list[str]
) -> None:
    load(xapi)

    shown = "".join(f"{word}\n" for word in words) or ":nothing 0\n"
    assert complete(xapi, line, _XAPI_AFTER_CURSOR=after) == Outcome(0, shown)


@pytest.mark.parametrize(
    ("line", "word", "words"),
    [
        ("xapi request P /v2/pets/7", "P", ["PUT"]),
        ("xapi request P '/v2/pets/7/photo' P=1", "P", ["POST"]),
        ("xapi request P P", "P", []),
        ("xapi request -p P P /v2/pets/7", "P", ["PATCH", "POST", "PUT"]),  # the profile P has no description
        ("xapi request /v2/pets/7 view==f X-Trace:1", "view==f", ["view==full"]),
    ],
)
def test_in_powershell_what_follows_the_cursor_is_not_before_it(
    xapi: Xapi, line: str, word: str, words: list[str]
) -> None:
    load(xapi)

    reply = complete(xapi, line, "powershell", _TYPER_COMPLETE_WORD_TO_COMPLETE=word)

    assert reply == Outcome(0, "".join(f"{each}::: \n" for each in words) or "\n")


def test_headers_and_their_values_complete(xapi: Xapi) -> None:
    version = {"name": "X-Version", "in": "header", "schema": {"enum": ["1", "2"]}}
    load(xapi, openapi({"/a": {"get": {"parameters": [version, {"name": "sid", "in": "cookie"}]}}}))

    assert complete(xapi, "xapi request /a -H ").out == "X-Version:\n"
    assert complete(xapi, "xapi request /a --header X-Version:").out == "X-Version:1\nX-Version:2\n"
    assert complete(xapi, "xapi request /a X-V").out == "X-Version:\n"
    assert complete(xapi, "xapi request /a X-Version:").out == "X-Version:1\nX-Version:2\n"


@pytest.mark.parametrize(
    ("shell", "reply"),
    [
        ("bash", "caption=\nphoto@\n"),
        ("zsh", "compadd -S '' -- 'caption=' 'photo@'\n"),
        ("fish", "caption=\nphoto@\n"),
        ("powershell", "caption=::: \nphoto@::: \n"),
    ],
)
def test_each_shell_gets_words_in_its_format(xapi: Xapi, shell: str, reply: str) -> None:
    load(xapi)

    assert complete(xapi, "xapi request /v2/pets/7/photo ", shell) == Outcome(0, reply)


def test_a_file_still_completes_after_its_separator(xapi: Xapi) -> None:
    load(xapi)

    assert complete(xapi, "xapi request /v2/pets/7/photo photo@").out == ":files 6\n"


def test_each_profile_offers_its_own_paths(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.a]\nbase_url = "https://api.test/v2"\n[profiles.b]\n')
    load(xapi, SWAGGER, XAPI_PROFILE="a")

    assert complete(xapi, "xapi request -p a /p").out == "/pets/{id}\n/pets/{id}/photo\n"
    assert complete(xapi, "xapi request -p b /p").out == ":nothing 0\n"
    assert complete(xapi, "xapi request -p none /p").out == ":nothing 0\n"


def test_another_base_url_offers_no_paths(xapi: Xapi) -> None:
    load(xapi, SWAGGER, XAPI_BASE_URL="https://api.test/v2")

    assert complete(xapi, "xapi request --base-url https://api.test/v2/ /p").out == "/pets/{id}\n/pets/{id}/photo\n"
    assert complete(xapi, "xapi request --base-url https://other.test/v2 /p").out == ":nothing 0\n"
    assert complete(xapi, "xapi request /v2/p").out == "/v2/pets/{id}\n/v2/pets/{id}/photo\n"


def test_completion_sends_nothing(xapi: Xapi) -> None:
    load(xapi)
    with Server([close()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        for line in ("xapi request ", "xapi request /v2/", "xapi request /v2/pets/7 ", "xapi api load /"):
            assert complete(xapi, line, **env).code == 0
        assert server.received == []


@pytest.mark.parametrize("shell", SHELLS)
def test_words_that_a_shell_would_evaluate_are_not_offered(xapi: Xapi, shell: str) -> None:
    characters = ";&|'\"\\ ,!*()<>\n"
    bad = ("$(touch pwned)", "`touch pwned`", *(f"a{each}b" for each in characters))
    parameters = [{"name": name, "in": "query"} for name in (*bad, "good")]
    values = {"name": "value", "in": "query", "schema": {"enum": [*bad, "fine"]}}
    paths: dict[str, Any] = {f"/{each}": {"get": {}} for each in bad}
    load(xapi, openapi({**paths, "/ok": {"get": {"parameters": [*parameters, values]}}}))

    shown = [complete(xapi, f"xapi request /{word}", shell) for word in ("", "ok ", "ok value==")]

    for outcome, word in zip(shown, ("/ok", "good==", "value==fine"), strict=True):
        assert (outcome.code, outcome.err) == (0, "")
        assert word in outcome.out
        assert not set(outcome.out.removeprefix("compadd -S '' -- ").replace("compadd", "")) & set('$`;&|"\\,!*()')
    assert not (xapi.home / "pwned").exists()


@pytest.mark.parametrize(
    ("place", "word", "offered"),
    [("query", "sort==", "sort==name"), ("header", "sort:", "sort:name")],
)
def test_a_value_that_would_read_a_file_is_not_offered(xapi: Xapi, place: str, word: str, offered: str) -> None:
    values = ["@/etc/passwd", "=@/etc/passwd", "=x", "name"]
    parameter = {"name": "sort", "in": place, "schema": {"enum": values}}
    load(xapi, openapi({"/a": {"get": {"parameters": [parameter]}}}))

    assert complete(xapi, f"xapi request /a {word}").out.split() == (
        [offered] if place == "header" else ["sort===@/etc/passwd", "sort===x", offered]
    )


def test_a_path_that_bash_would_expand_is_not_offered(xapi: Xapi) -> None:
    paths = ("/a{1..9}", "/{a,b}", "/{x..y}", "/{", "/{}", "/{a-b}/{c.d}")
    load(xapi, openapi({path: {"get": {}} for path in paths}))

    assert complete(xapi, "xapi request /").out == "/{a-b}/{c.d}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_no_word_of_a_description_is_an_option_of_xapi(xapi: Xapi, shell: str) -> None:
    names = ("--output", "-obashrc", "--base-url", "-", "a-b")
    parameters = [{"name": name, "in": place} for name in names for place in ("query", "header")]
    load(xapi, openapi({"/a": {"get": {"parameters": parameters}}}))

    for line in ("", "-H "):
        words = complete(xapi, f"xapi request /a {line}", shell).out.replace("compadd -S '' --", "").split()
        assert not [word for word in words if word.strip("'").startswith("-")]
        assert any("a-b" in word for word in words)
    assert "--output=" not in complete(xapi, "xapi request /a -", shell).out


@pytest.mark.parametrize("value", ["~root", "a:~root", "a=~", ":~"])
def test_a_value_that_bash_would_expand_is_not_offered(xapi: Xapi, value: str) -> None:
    schema = {"properties": {"home": {"enum": [value, "a~b"]}}}
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    query = {"parameters": [{"name": "home", "in": "query", "schema": {"enum": [value, "a~b"]}}]}
    load(xapi, openapi({"/a": {"post": body}, "/b": {"get": query}}))

    assert complete(xapi, "xapi request /a home=").out == "home=a~b\n"
    assert complete(xapi, "xapi request /b home==").out == "home==a~b\n"


def test_a_path_that_a_request_refuses_is_not_offered(xapi: Xapi) -> None:
    load(xapi, openapi({"//evil.example/x": {"get": {}}, "/a": {"get": {}}}))

    assert complete(xapi, "xapi request /").out == "/a\n"


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param([f"/a{n:05}" for n in range(20_000)], marks=pytest.mark.slow),
        [f"/{'a' * 1900}{n}" for n in range(900)],
    ],
)
def test_of_very_many_words_a_limited_number_with_the_same_beginning_is_offered(xapi: Xapi, paths: list[str]) -> None:
    load(xapi, openapi({path: {"get": {}} for path in (*paths, "/b")}))

    shown = complete(xapi, "xapi request /").out

    words = shown.split()
    assert 10 < len(words) <= 1000
    assert len(shown) < 110_000
    assert "/b" in words  # otherwise, the shell would insert /a


@pytest.mark.parametrize("damage", [b"", b"xapi-api 2 3\n", b"\xff\x00", b"xapi-api 1 999999\n[]\n"])
def test_a_damaged_index_offers_nothing_and_prints_no_error(xapi: Xapi, damage: bytes) -> None:
    load(xapi)
    path = xapi.state / "api" / "default"
    path.write_bytes(damage)

    assert complete(xapi, "xapi request /v").out == ":nothing 0\n"
    assert complete(xapi, "xapi request ") == Outcome(0, "\n".join(METHODS) + "\n")


def test_an_unsafe_state_directory_offers_nothing(xapi: Xapi) -> None:
    load(xapi)
    xapi.state.chmod(0o777)

    assert complete(xapi, "xapi request /v") == Outcome(0, ":nothing 0\n")
