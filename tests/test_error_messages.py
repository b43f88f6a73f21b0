"""What people run into, each provoked with the real program: the line says what happened, and what to do about it.

Read the lines aloud: whoever cannot act on one has found a bug.
"""

from typing import NamedTuple

import pytest

from tests.program import Environ, Outcome, Xapi
from tests.servers import Server, free_port, hang, request, send
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox

HERE: Environ = {"XAPI_BASE_URL": "{base}", "XAPI_USERNAME": MASTER.email}
TOKEN: Environ = {"XAPI_BASE_URL": "{base}", "XAPI_TOKEN": "abc"}
PASSWORD: Environ = {**HERE, "XAPI_PASSWORD": "wrong"}
ME = f"{MASTER.email} at {{base}}"


class Error(NamedTuple):
    """The words and the environment that provoke it; {base}, {name} and {free} are made real."""

    words: str
    env: Environ
    code: int
    line: str


ERRORS = {
    # the words of the command line
    "a command of another tool": Error(
        "get /x-api/me", {}, 2, "there is no such command; did you mean `xapi request`?"
    ),
    "a word that is nothing": Error("frobnicate", {}, 2, "there is no such command; see `xapi --help`"),
    "a flag with a typo": Error(
        "login --usrname me", {}, 2, "there is no option --usrname; did you mean --username?"
    ),
    "a flag before its command": Error(
        "--profile work request /a", {}, 2,
        "there is no option --profile; flags come after the command: `xapi COMMAND --profile`",
    ),
    "a password as an argument": Error(
        "login --password hunter2", {}, 2,
        "there is no option --password; no flag takes a password: use --password-stdin, XAPI_PASSWORD or the prompt of"
        " `xapi login`",
    ),
    "no path": Error("request", TOKEN, 2, "PATH is missing; write `xapi request [METHOD] PATH [ITEM]...`"),
    "no command to run": Error("exec", TOKEN, 2, "COMMAND is missing; write `xapi exec -- COMMAND [ARG]...`"),
    "a number that is none": Error(
        "request /a --retry often", TOKEN, 2,
        "--retry: 'often' is no whole number; give a whole number from 0 to 100",
    ),
    "a choice that is none": Error(
        "token show --format jsn", TOKEN, 2,
        "--format: 'jsn' is none of its values; use token, header, json, env or exec-credential",
    ),
    "a stray argument": Error("login hunter2", {}, 2, "there is an argument too many; see `xapi login --help`"),
    "flags that exclude each other": Error(
        "token show --fresh --no-login", HERE, 2, "--fresh cannot go with --no-login; leave one of them out"
    ),
    # the settings
    "no base URL": Error(
        "request /a", {}, 2, "there is no base URL; give --base-url, set XAPI_BASE_URL, or run `xapi login`"
    ),
    "no base URL to log in at": Error(
        "login", {}, 2, "there is no base URL; give --base-url, or set XAPI_BASE_URL"
    ),
    "no username to log in with": Error(
        "login --base-url {base}", {}, 2, "there is no username; give --username, or set XAPI_USERNAME"
    ),
    "a base URL of another kind": Error(
        "token status --base-url ftp://api.test", HERE, 2,
        "--base-url: base URL has the scheme 'ftp', not http or https; write it like https://api.example.com",
    ),
    "a profile that is not there": Error(
        "token status -p nope", HERE, 2,
        "there is no profile 'nope'; known: none yet; `xapi login --profile NAME` makes one",
    ),
    "a setting that is none": Error(
        "profile set timout 5", {}, 2,
        "there is no setting 'timout'; did you mean timeout? Known are base_url, username, password_command, storage,"
        " timeout, max_time, ca_bundle",
    ),
    "a variable with nonsense": Error(
        "token status", {**HERE, "XAPI_TIMEOUT": "soon"}, 2,
        "XAPI_TIMEOUT: 'soon' is no number of seconds above 0; write it like 30 or 2.5",
    ),
    "a storage that is none": Error(
        "token status", {**HERE, "XAPI_STORAGE": "disk"}, 2,
        "XAPI_STORAGE: 'disk' is no storage; use auto, keyring, file or none",
    ),
    "a token with a blank": Error(
        "token show", {**HERE, "XAPI_TOKEN": "a b"}, 2,
        "XAPI_TOKEN holds characters that no token can have; set it to the bare token: no blanks, no newline",
    ),
    "a duration that is none": Error(
        "token status --min-ttl week", HERE, 2,
        "--min-ttl: 'week' is no duration; write 90s, 30m, 2h, 7d, 1h30m or a number of seconds",
    ),
    # tokens and passwords
    "a wrong password": Error(
        "login", PASSWORD, 10, f"login as {ME} was refused (400 invalid_grant); check username and password"
    ),
    "no password to log in with": Error(
        "login", HERE, 10,
        f"there is no password for {ME}; use --password-stdin, set XAPI_PASSWORD, or run `xapi login` on a terminal",
    ),
    "no token and no password": Error(
        "request /x-api/me", HERE, 10,
        f"no token was stored for {ME}, and there is no password to log in with; run `xapi login`, or set XAPI_PASSWORD"
        " or the profile's password_command",
    ),
    "no token": Error("token status", HERE, 10, "no token is stored; run `xapi login`"),
    "no token and no login": Error(
        "token show --no-login", HERE, 10,
        f"no token was stored for {ME}, and --no-login was given; run `xapi login`",
    ),
    "a ready-made token that is dead": Error(
        "request /x-api/me", TOKEN, 10,
        "GET {base}/x-api/me answered 401 Unauthorized; XAPI_TOKEN is not accepted: set it anew, or unset it so that"
        " xapi logs in by itself",
    ),
    "a password command that fails": Error(
        "login --password-command false", HERE, 10,
        "password_command 'false' failed with exit code 1; run it by hand to see why; nothing else was tried",
    ),
    "nothing on stdin": Error(
        "login --password-stdin", HERE, 2,
        "--password-stdin: the first line of stdin is empty; pipe the password into it",
    ),
    "a password for a keyring that is not in use": Error(
        "login --remember", HERE, 2,
        "--remember needs a keyring, and the storage is file; use --storage keyring, or leave --remember out",
    ),
    # the network
    "nobody listens": Error(
        "login --base-url http://127.0.0.1:{free}", PASSWORD, 11,
        "no connection to 127.0.0.1:{free}: connection refused; nothing listens there: check host and port of the base"
        " URL, and whether the server runs",
    ),
    "TLS where there is none": Error(
        "login --base-url https://{name}", PASSWORD, 11,
        "no TLS connection to {name}: the server does not speak TLS there; is it an http:// server, or another port?",
    ),
    "a base URL with a wrong path": Error(
        "login --base-url {base}/v2", PASSWORD, 4,
        "the token endpoint answered 404: there is none at {base}/v2/x-api/token; is the base URL right? It is what"
        " comes before /x-api/token",
    ),
    "a proxy of another kind": Error(
        "login", {**PASSWORD, "HTTP_PROXY": "socks5://proxy.test"}, 2,
        "the proxy in HTTP_PROXY is a SOCKS proxy, which xapi does not support; name an HTTP proxy instead",
    ),
    "another origin": Error(
        "request https://elsewhere.test/a", TOKEN, 2,
        "PATH names the origin https://elsewhere.test, but the base URL's is {base}; give the path alone, or set"
        " --base-url",
    ),
    # files and stores
    "no keyring": Error(
        "login", {**PASSWORD, "XAPI_STORAGE": "auto"}, 13,
        "no usable keyring on this machine; use --storage file, or set XAPI_STORAGE=file",
    ),
    "a body that is not there": Error(
        "request /a -d @missing", TOKEN, 2,
        "cannot read missing: No such file or directory; an @ is followed by a path",
    ),
    "a file in no folder": Error(
        "request /x-api/me -o nowhere/file", TOKEN, 14,
        "nowhere/file cannot be written: No such file or directory; give another file",
    ),
    "a program that is not there": Error("exec -- nowhere", TOKEN, 127, "nowhere: not found; check the name and PATH"),
    "a port that is taken": Error(
        "sandbox --port {port}", {}, 2,
        "cannot listen on {name}: Address already in use; choose another --port",
    ),
    "something is wrong with the machine": Error(
        "doctor", {}, 1, "1 of 11 checks failed: profile; do what is said there"
    ),
}  # fmt: skip


def test_there_are_thirty() -> None:
    assert len(ERRORS) >= 30
    assert {error.code for error in ERRORS.values()} == {1, 2, 4, 10, 11, 13, 14, 127}


@pytest.mark.parametrize("kind", ERRORS)
def test_the_line_says_what_happened_and_what_to_do(xapi: Xapi, sandbox: Sandbox, kind: str) -> None:
    error = ERRORS[kind]
    name = sandbox.base_url.removeprefix("http://")
    real = {"base": sandbox.base_url, "name": name, "port": name.rpartition(":")[2], "free": str(free_port())}
    env = {key: value.format(**real) if value else value for key, value in error.env.items()}

    outcome = xapi(*error.words.format(**real).split(), env=env)

    assert (outcome.code, outcome.err) == (error.code, f"xapi: error: {error.line.format(**real)}\n")
    what, _, remedy = error.line.partition("; ")
    assert what
    assert remedy
    assert "hunter2" not in outcome.err


# those that need a server or a state of their own


def test_a_user_without_rights_is_told_whom_the_api_serves(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_USERNAME": MEMBER.email, "XAPI_PASSWORD": MEMBER.password}

    outcome = xapi("request", "/x-api/me", "-o", "me.json", env=env)

    assert outcome.code == 4
    assert outcome.err.splitlines()[-1] == (
        f"xapi: error: GET {sandbox.base_url}/x-api/me answered 403 Forbidden; "
        "the API serves only users with master rights"
    )


def test_a_path_that_is_not_there_is_told(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    outcome = xapi("request", "/x-api/nowhere", "--error-body", "none")

    assert outcome == Outcome(
        4,
        "",
        f"xapi: error: GET {sandbox.base_url}/x-api/nowhere answered 404 Not Found; check the path and the base URL\n",
    )


def test_a_server_that_does_not_answer_in_time_is_told_with_the_limit_to_raise(xapi: Xapi) -> None:
    with Server([hang()]) as server:
        outcome = xapi("request", "/a", "--timeout", "0.5", "--base-url", server.url, env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(
        12, "", f"xapi: error: no answer from {server.name} within 0.5 s; raise --timeout to wait longer\n"
    )


def test_a_server_in_trouble_is_told(xapi: Xapi) -> None:
    with Server([request(), send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")]) as server:
        outcome = xapi("request", "/a", "--base-url", server.url, env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(
        5, "", f"xapi: error: GET {server.url}/a answered 503 Busy; the service is in trouble; try again later\n"
    )


def test_a_sign_in_page_in_place_of_a_token_is_told(xapi: Xapi) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
    with Server([request(), send(page)]) as server:
        outcome = xapi("login", "--base-url", server.url, "-u", "me", env={"XAPI_PASSWORD": "hunter2"})

    assert outcome == Outcome(
        11,
        "",
        f"xapi: error: the answer of the token endpoint {server.url}/x-api/token is no token response: "
        "it is no JSON (6 bytes); is the base URL right? A proxy or a sign-in page may be answering\n",
    )


def test_a_typo_in_the_config_file_is_told_with_its_place(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nbaseurl = "https://api.example.com"\n')

    outcome = xapi("token", "status")

    assert outcome == Outcome(
        2,
        "",
        f"xapi: error: {xapi.config / 'config.toml'}: unknown key profiles.default.baseurl; did you mean base_url? "
        "Known are base_url, username, password_command, storage, timeout, max_time, ca_bundle\n",
    )


def test_what_to_run_is_about_the_profile_that_was_asked_for(xapi: Xapi) -> None:
    for key, value in (("base_url", "https://api.test"), ("username", "me")):
        xapi("profile", "set", key, value, "-p", "staging")

    told = "xapi: error: no token is stored; run `xapi login --profile staging`\n"
    assert xapi("token", "status", "-p", "staging").err == told
    assert xapi("token", "status", env={"XAPI_PROFILE": "staging"}).err == told.replace(" --profile staging", "")
    assert "run `xapi login --profile staging`; " in xapi("doctor", "-p", "staging", "--timeout", "1").out
