"""What --curl cannot print, and what it reports about the command."""

from pathlib import Path

import pytest

from tests.support.program import Outcome, Xapi
from xapi_cli.feature_table import request_options
from xapi_cli.request.options import ROWS


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["/a", "b=@-"], "--curl cannot show a field that is read from stdin"),
        (["/a", "b==@-"], "--curl cannot show a value that is read from stdin"),
        (["/a", "B:@-"], "--curl cannot show a value that is read from stdin"),
        (["HEAD", "/a", "b=1"], "curl cannot send a HEAD request with a body"),
        (["/a", "b;c=1", "f@/dev/null"], "--curl cannot show the name of a part that has one of = ; ,"),
    ],
)
def test_requests_that_curl_cannot_send_are_rejected(xapi: Xapi, args: list[str], message: str) -> None:
    outcome = xapi("request", *args, "--curl", env={"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"})

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_the_value_of_a_header_from_a_file_is_not_in_the_command(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary\n")
    env = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"}

    headers = xapi("request", "/a", "X-Key:@secret", "Authorization:@secret", "--curl", env=env, cwd=tmp_path)
    query = xapi("request", "/a", "q==@secret", "--curl", env=env, cwd=tmp_path)

    assert headers.code == 0
    assert "canary" not in headers.out
    assert query.err == "xapi: the command for curl contains the value from secret\n"


PARTIAL = "curl writes FILE as the body arrives, not atomically"
MISSING = "omitted from the command, because curl has no equivalent"
NO_REDIRECT = "curl does not follow redirects here: it would send the body and your headers to any host"
NO_REPETITION = "curl does not follow redirects here: it would repeat the {} where xapi sends a GET"


@pytest.mark.parametrize(
    ("args", "switches", "notes"),
    [
        (["/a"], "", []),
        (["/a", "--timeout", "30"], "", []),
        (
            ["/a", "--timeout", "1.5"],
            "--connect-timeout 1.5 --speed-limit 1 --speed-time 2",
            ["curl has no timeout for each wait: --speed-time ends a transfer that stalls for that long"],
        ),
        (
            ["/a", "--retry", "3"],
            "--retry 3 --retry-connrefused",
            ["curl's --retry also retries after 408, 500 and a timeout, and prints the body of each failed attempt"],
        ),
        (["POST", "/a", "--retry", "3", "--no-follow"], "", []),
        (["/a", "-o", "it's"], "--output 'it'\\''s'", [PARTIAL]),
        (["/a", "-i"], "--include", []),
        (["/a", "--error-body", "none"], "--fail", []),
        (["/a", "--error-body", "stderr"], "", [f"{MISSING}: --error-body"]),
        (["/a", "--meta", "m", "-v"], "", [f"{MISSING}: --meta, --verbose"]),
        (["/a", "--error-body", "none", "--no-check-status"], "", [f"{MISSING}: --error-body"]),
        (["/a", "--ca-bundle", "~/ca.pem"], "--cacert '{home}/ca.pem'", []),
        (["/a", "X-A:1"], "", [NO_REDIRECT]),
        (["/a", "b=1"], "", [NO_REDIRECT]),
        (["HEAD", "/a"], "--location", []),
        (["POST", "/a"], "--request POST", [NO_REPETITION.format("POST")]),
        (["DELETE", "/a"], "--request DELETE", [NO_REPETITION.format("DELETE")]),
        (["/a", "b=1", "--no-follow"], "", []),
    ],
)  # fmt: skip
def test_options_without_a_curl_equivalent_are_reported(
    xapi: Xapi, args: list[str], switches: str, notes: list[str]
) -> None:
    outcome = xapi("request", *args, "--curl", env={"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "canary"})

    assert f" {switches.format(home=xapi.home)} " in outcome.out if switches else outcome.code == 0
    assert outcome.err.splitlines() == [f"xapi: {note}" for note in notes]
    assert "canary" not in outcome.out + outcome.err


# Every flag of the command is in one of these tables: the command for curl contains it, or a note names it.
TRANSLATED: dict[str, tuple[list[str], list[str]]] = {  # the arguments with the flag, and without it
    "--request": (["/a", "--request", "PUT"], ["/a"]),
    "--header": (["/a", "--header", "A:1"], ["/a"]),
    "--data": (["/a", "--data", "x"], ["/a"]),
    "--form": (["/a", "a=1", "--form"], ["/a", "a=1"]),
    "--include": (["/a", "--include"], ["/a"]),
    "--output": (["/a", "--output", "f"], ["/a"]),
    "--no-follow": (["/a", "--no-follow"], ["/a"]),
    "--retry": (["/a", "--retry", "3"], ["/a"]),
    "--no-check-status": (["/a", "--no-check-status"], ["/a"]),
    "--no-login": (["/a", "--no-login"], ["/a"]),
}
REPORTED = {
    "--continue": ["-o", "f", "--continue"],
    "--error-body": ["--error-body", "stderr"],
    "--meta": ["--meta", "-"],
    "--jq": ["--jq", "."],
    "--expect": ["--expect", "."],
    "--until": ["--until", "."],
    "--paginate": ["--paginate"],
    "--every": ["--until", ".", "--every", "1s"],
    "--items": ["--paginate", "--items", "a"],
    "--slurp": ["--paginate", "--slurp"],
    "--next": ["--paginate", "--next", "a"],
    "--max-pages": ["--paginate", "--max-pages", "1"],
    "--verbose": ["--verbose"],
}


def _curl(xapi: Xapi, *args: str) -> Outcome:
    env = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "t"}
    outcome = xapi("request", *args, "--curl", env=env)
    assert outcome.code == 0, outcome
    return outcome


def test_the_command_for_curl_takes_every_flag_into_account() -> None:
    names = {row.names[0] for row in (*ROWS.values(), *request_options().values())}
    assert names | {"--retry"} == {*TRANSLATED, *REPORTED, "--curl"}


@pytest.mark.parametrize("flag", TRANSLATED)
def test_a_flag_changes_the_command_for_curl(xapi: Xapi, flag: str) -> None:
    with_flag, without = TRANSLATED[flag]
    assert flag in with_flag
    assert _curl(xapi, *with_flag).out != _curl(xapi, *without).out


@pytest.mark.parametrize("flag", REPORTED)
def test_a_note_names_a_flag_that_curl_does_not_have(xapi: Xapi, flag: str) -> None:
    [note] = [line for line in _curl(xapi, "/a", *REPORTED[flag]).err.splitlines() if MISSING in line]
    assert flag in note.split(": ")[2].split(", ")
