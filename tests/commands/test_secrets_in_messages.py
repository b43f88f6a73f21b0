"""A server or a filter can put a secret at any place of a text that a message quotes, and messages cut such texts."""

from collections.abc import Sequence

import pytest

from tests.commands.page_server import PageServer, page
from tests.support.program import Xapi

TOKEN = "CANARY" + "-7Zq" * 31 + "x"  # 131 characters
SHOWN = 3  # characters of a secret that may remain
LONG = "q" * 150

JSON = "Content-Type: application/json"


def check(xapi: Xapi, args: Sequence[str], reply: bytes, code: int, quoted: str = "***") -> None:
    with PageServer(lambda target: reply) as server:
        outcome = xapi("request", "/", *args, env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": TOKEN})

    assert TOKEN[: SHOWN + 1] not in outcome.err
    assert quoted in outcome.err  # the text was not just left out
    assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome


@pytest.mark.parametrize("before", ["q" * 50])
@pytest.mark.parametrize(
    "args, reply, code, quoted",
    [
        ([], ("405 X", "Allow: {}"), 4, "allowed methods: "),
        ([], ("404 {}", "X: y"), 4, "responded with 404 "),
        (["--paginate"], ("200 OK", "Content-Type: text/{}"), 6, "(Content-Type text/"),
    ],
)
def test_a_header_that_is_cut_reveals_no_part_of_the_token(
    xapi: Xapi, before: str, args: list[str], reply: tuple[str, str], code: int, quoted: str
) -> None:
    status, header = (part.format(before + TOKEN) for part in reply)
    check(xapi, args, page(b"no JSON", header, status=status), code, f"{quoted}{before}***")


@pytest.mark.parametrize("before", [LONG, "q" * 65_000])
def test_a_reason_and_a_shown_body_that_are_cut_reveal_no_part_of_the_token(xapi: Xapi, before: str) -> None:
    token = "".join(f"{number}," for number in range(300))
    with PageServer(lambda target: page(f"{before}{token}".encode(), "X: y", status="400 X")) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": token}
        outcome = xapi("request", "/", "-vv", env=env)

    assert (outcome.code, "q***…" in outcome.err, token[: SHOWN + 1] in outcome.err) == (4, True, False)


def test_a_header_of_the_user_that_the_api_repeats_is_redacted(xapi: Xapi) -> None:
    check(xapi, ["X-Api-Key:own-secret"], page({"message": "own-secret"}, JSON, status="400 X"), 4, "400 X: ***")


def test_a_password_that_the_token_endpoint_repeats_is_redacted(xapi: Xapi) -> None:
    assert xapi("profile", "set", "password_command", "echo CANARY").code == 0
    with PageServer(lambda target: page(b"", "X-Echo: CANARY", status="400 CANARY")) as server:
        outcome = xapi("request", "/", "-v", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me"})

    assert (outcome.code, outcome.out, "CANARY" in outcome.err) == (10, "", False)
    assert "X-Echo: ***" in outcome.err


@pytest.mark.parametrize("before", [LONG])
@pytest.mark.parametrize("args, code", [(["--jq"], 6), (["--expect"], 6), (["--every", "1", "--until"], 6)])
def test_an_error_of_jq_that_is_cut_reveals_no_part_of_the_token(
    xapi: Xapi, args: list[str], code: int, before: str
) -> None:
    check(xapi, [*args, "error(.a)"], page({"a": before + TOKEN}, JSON), code)


@pytest.mark.parametrize("name", ["{}", 'query": {{"{}": {{}}}}, "path', 'headers": {{"{}": []}}, "path'])
def test_a_name_in_a_line_of_a_batch_that_is_cut_reveals_no_part_of_the_token(xapi: Xapi, name: str) -> None:
    line = '{"' + name.format(TOKEN) + '": "/"}'
    outcome = xapi("batch", input=line, env={"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_TOKEN": TOKEN})

    assert outcome.code == 2
    assert TOKEN[: SHOWN + 1] not in outcome.out + outcome.err
    assert "'***…'" in outcome.out


@pytest.mark.parametrize(
    "args, lines", [(["request", "/a;token=CANARY"], ""), (["batch"], '{"path": "/a;token=CANARY"}')]
)
def test_a_parameter_in_the_path_of_a_rejected_request_is_redacted(xapi: Xapi, args: list[str], lines: str) -> None:
    with PageServer(lambda target: page(b"", status="401 No")) as server:
        outcome = xapi(*args, input=lines, env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": TOKEN})

    assert outcome.code == 10
    assert "/a;token=*** responded with 401" in outcome.out + outcome.err
    assert "CANARY" not in outcome.out + outcome.err
