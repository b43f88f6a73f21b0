"""Frequent errors, caused with the real program: one line states what happened and what to do.

A line that a user cannot act on is a bug.
"""

import json
from typing import NamedTuple

import pytest

from tests.support.program import Environ, Outcome, Xapi
from tests.support.servers import Server, free_port, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox
from xapi_cli.store import registry

HERE: Environ = {"XAPI_BASE_URL": "{base}", "XAPI_USERNAME": MASTER.email}
TOKEN: Environ = {"XAPI_BASE_URL": "{base}", "XAPI_TOKEN": "abc"}
PASSWORD: Environ = {**HERE, "XAPI_PASSWORD": "wrong"}
ME = f"{MASTER.email} at {{base}}"


class Error(NamedTuple):
    """The arguments and the environment that cause an error; {base}, {name} and {free} are replaced."""

    args: str
    env: Environ
    code: int
    line: str


ERRORS = {
    # the command line
    "an unexpected argument": Error(
        "login hunter2", {}, 2,
        "unexpected argument; give the base URL as the argument, or select a profile with -p NAME",
    ),
    "a password after the username": Error(
        "request /a -u me:hunter2", {}, 2,
        "--username: the username looks like USERNAME:PASSWORD; give only the username: no option takes a password",
    ),
    "conflicting options": Error(
        *("token show --header --json", HERE, 2),
        "--format, --header and --json select different formats; use only one of them",
    ),
    # the settings
    "no base URL": Error(
        "request /a", {}, 2, "no base URL; give --base-url, set XAPI_BASE_URL, or run `xapi login`"
    ),
    "no base URL to log in at": Error(
        "login", {}, 2, "no base URL; give --base-url, or set XAPI_BASE_URL"
    ),
    "no username": Error(
        "login --base-url {base}", {}, 2, "no username; give --username, or set XAPI_USERNAME"
    ),
    "a base URL with another scheme": Error(
        "token status --base-url ftp://api.test", HERE, 2,
        "--base-url: the base URL has the scheme 'ftp', not http or https; write it like https://api.example.com",
    ),
    "an argument of login with another scheme": Error(
        "login ftp://api.test", PASSWORD, 2,
        "URL: the base URL has the scheme 'ftp', not http or https; write it like https://api.example.com",
    ),
    "a missing profile": Error(
        "token status -p nope", HERE, 2,
        "profile 'nope' does not exist; create it with `xapi login --profile nope`",
    ),
    "an unknown setting": Error(
        "profile set timout 5", {}, 2,
        "unknown setting 'timout'; did you mean timeout?",
    ),
    "an invalid variable": Error(
        "token status", {**HERE, "XAPI_TIMEOUT": "soon"}, 2,
        "XAPI_TIMEOUT: 'soon' is not a valid duration;"
        " write 90s, 30m, 2h, 7d, 1h30m or a number of seconds such as 0.1",
    ),
    "an invalid storage": Error(
        "token status", {**HERE, "XAPI_STORAGE": "disk"}, 2,
        f"XAPI_STORAGE: 'disk' is not a valid storage; use {registry.alternatives()}",
    ),
    "a token with a space": Error(
        "token show", {**HERE, "XAPI_TOKEN": "a b"}, 2,
        "XAPI_TOKEN: the value contains characters that are not allowed in a token;"
        " set it to the token alone, without spaces or a newline",
    ),
    "an invalid duration": Error(
        "token status --min-ttl week", HERE, 2,
        "--min-ttl: 'week' is not a valid duration; write 90s, 30m, 2h, 7d, 1h30m or a number of seconds such as 0.1",
    ),
    # tokens and passwords
    "a wrong password": Error(
        "login", PASSWORD, 10,
        f"login as {ME} was rejected "
        "(400 invalid_grant: username and password do not match); check the password in XAPI_PASSWORD, and the username"
    ),
    "no password source": Error(
        "login", HERE, 10,
        f"no password for {ME}; use --password-stdin, set XAPI_PASSWORD, or run `xapi login` on a terminal",
    ),
    "no token and no password": Error(
        "request /x-api/me", HERE, 10,
        f"not logged in as {ME}: no stored token, and no password source is available; run `xapi login`, or set"
        " XAPI_PASSWORD or the profile's password_command, or"
        " store the password with --storage keyring or helper",
    ),
    "no token": Error("token status", HERE, 10, "no stored token; run `xapi login`"),
    "no token and no login": Error(
        "token show --no-login", HERE, 10,
        f"not logged in as {ME}: no stored token, and --no-login was given; run `xapi login`",
    ),
    "an invalid token from the environment": Error(
        "request /x-api/me", TOKEN, 10,
        "GET {base}/x-api/me responded with 401 Unauthorized: the token is unknown or has expired;"
        " XAPI_TOKEN was rejected: replace the token, or unset"
        " XAPI_TOKEN so that xapi logs in automatically",
    ),
    "a password command that fails": Error(
        "login --password-command false", HERE, 10,
        "password_command 'false' failed with exit code 1; run it yourself to see why; it runs without a shell: for"
        " ~, $ or | write sh -c 'COMMAND'",
    ),
    "an empty stdin": Error(
        "login --password-stdin", HERE, 2,
        "--password-stdin: the first line of stdin is empty; pipe the password into it",
    ),
    "a password for a keyring that is not in use": Error(
        "login --remember", HERE, 2,
        "--remember cannot be used with storage file, which does not store passwords;"
        " use --storage keyring or helper, or --password-command instead of --remember",
    ),
    # the network
    "a refused connection": Error(
        "login", {**PASSWORD, "XAPI_BASE_URL": "http://127.0.0.1:{free}"}, 11,
        "no connection to 127.0.0.1:{free}: connection refused; check the host and port of the base URL, and"
        " whether the server is running",
    ),
    "TLS to a plain http server": Error(
        "login", {**PASSWORD, "XAPI_BASE_URL": "https://{name}"}, 11,
        "no TLS connection to {name}: the server does not use TLS on this port; check the scheme"
        " (without one, it is https) and the port of the base URL",
    ),
    "a base URL with a wrong path": Error(
        "login", {**PASSWORD, "XAPI_BASE_URL": "{base}/v2"}, 4,
        "the token endpoint responded with 404 Not Found: {base}/v2/x-api/token; check the base URL, which is the part"
        " before /x-api/token, and then the password in XAPI_PASSWORD",
    ),
    "a proxy with another scheme": Error(
        "login", {**PASSWORD, "HTTP_PROXY": "socks5://proxy.test"}, 2,
        "the proxy in HTTP_PROXY is a SOCKS proxy, which xapi does not support; use an HTTP proxy instead",
    ),
    "another origin": Error(
        "request https://elsewhere.test/a", TOKEN, 2,
        "PATH has the origin https://elsewhere.test, but the base URL has {base}; use only the path, or set"
        " --base-url",
    ),
    # files and stores
    "no keyring": Error(
        "login", {**PASSWORD, "XAPI_STORAGE": "auto"}, 13,
        "no usable keyring on this machine; run `xapi login --storage file` to store the token in a file",
    ),
    "a missing body file": Error(
        "request /a -d @missing", TOKEN, 2,
        "cannot read missing: No such file or directory; check the file name after the @",
    ),
    "a file in a missing directory": Error(
        "request /x-api/me -o nowhere/file", TOKEN, 14,
        "nowhere/file cannot be written: No such file or directory; choose another file",
    ),
    "a missing program": Error("exec -- nowhere", TOKEN, 127, "nowhere: not found; check the name and PATH"),
    "a port in use": Error(
        "sandbox --port {port}", {}, 2,
        "cannot listen on {name}: Address already in use; choose another --port",
    ),
    "a failed doctor": Error(
        "doctor", {}, 1, "1 of 10 checks failed: profile; follow the hints of the failed checks"
    ),
}  # fmt: skip


def test_there_are_thirty() -> None:
    assert len(ERRORS) >= 30
    assert {error.code for error in ERRORS.values()} == {1, 2, 4, 10, 11, 13, 14, 127}


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_states_what_happened_and_what_to_do(xapi: Xapi, sandbox: Sandbox, kind: str) -> None:
    error = ERRORS[kind]
    name = sandbox.base_url.removeprefix("http://")
    real = {"base": sandbox.base_url, "name": name, "port": name.rpartition(":")[2], "free": str(free_port())}
    env = {key: value.format(**real) if value else value for key, value in error.env.items()}

    outcome = xapi(*error.args.format(**real).split(), env=env)

    assert (outcome.code, outcome.err) == (error.code, f"xapi: error: {error.line.format(**real)}\n")
    what, _, remedy = error.line.partition("; ")
    assert what
    assert remedy
    assert "hunter2" not in outcome.err


# errors that need their own server or state


RIGHTS = "; the API serves only users with master rights"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", RIGHTS),
        (b'{"error": "forbidden", "message": "The project is archived"}', ": The project is archived"),
        (b'{"error": {"message": "line\\n\\u001b[31mtwo"}}', ": line \\x1b[31mtwo"),
    ],
)
def test_the_error_has_the_reason_of_the_api_and_without_one_names_the_rights(
    xapi: Xapi, body: bytes, text: str
) -> None:
    with Server([request(), send(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "abc"}
        outcome = xapi("request", "/a", env=env)

    error = f"xapi: error: GET {server.url}/a responded with 403 No{text}\n"
    assert outcome == Outcome(4, body.decode(), error)


def test_a_login_rejected_by_another_server_counts_as_rejected_and_suggests_checking_the_base_url(xapi: Xapi) -> None:
    page = b"HTTP/1.1 401 Unauthorized\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
    with Server([request(), send(page)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "hunter2"}
        login = xapi("login", "--error-format", "json", env=env)
        automatic = xapi("request", "/a", env=env)

    reason = f"401 from {server.url}/x-api/token, which did not respond with JSON"
    what = f"login as me at {server.url} was rejected ({reason})"
    assert (login.code, json.loads(login.err)) == (
        10,
        {
            "level": "error",
            "code": 10,
            "kind": "auth",
            "message": what,
            "hint": "check the base URL, the password in XAPI_PASSWORD, and the username",
            "status": 401,
            "method": "POST",
            "url": f"{server.url}/x-api/token",
        },
    )
    assert automatic.code == 10
    assert automatic.err.startswith(f"xapi: error: {what} less than a minute ago, so this password is not sent again; ")
    assert len(server.received) == 1


def test_the_suggested_command_contains_the_selected_profile(xapi: Xapi) -> None:
    for key, value in (("base_url", "https://api.test"), ("username", "me")):
        xapi("profile", "set", key, value, "-p", "staging")

    result = "xapi: error: no stored token; run `xapi login --profile staging`\n"
    assert xapi("token", "status", "-p", "staging").err == result
    assert xapi("token", "status", env={"XAPI_PROFILE": "staging"}).err == result.replace(" --profile staging", "")
    assert "run `xapi login --profile staging`; " in xapi("doctor", "-p", "staging", "--timeout", "1").out


def test_the_suggested_login_contains_the_options_that_select_the_account_and_its_store(xapi: Xapi) -> None:
    for key, value in (("base_url", "https://api.test"), ("username", "me")):
        xapi("profile", "set", key, value)
    options = ("--username", "o'neil@example.com", "--base-url", "other.test")

    login = r"xapi login --username 'o'\''neil@example.com' --base-url other.test --storage file"
    assert f"; run `{login}`, or set " in xapi("request", "/x", *options, "--storage", "file", "--no-input").err
    assert xapi("token", "status", "-u", "you").err == "xapi: error: no stored token; run `xapi login --username you`\n"
    by_variable = xapi("token", "status", env={"XAPI_USERNAME": "you", "XAPI_BASE_URL": "https://other.test"})
    assert by_variable.err == "xapi: error: no stored token; run `xapi login`\n"


@pytest.mark.parametrize("option", [("-u", "me:canary"), ("--base-url", "https://me:canary@api.test")])
def test_the_suggested_login_does_not_repeat_a_value_that_may_be_a_secret(xapi: Xapi, option: tuple[str, str]) -> None:
    outcome = xapi("token", "status", "-p", "nope", *option)

    assert outcome.err == "xapi: error: profile 'nope' does not exist; create it with `xapi login --profile nope`\n"


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (
            ("exec", "--no-input", "true"),
            (
                "set XAPI_PASSWORD or the profile's password_command, or store the password with"
                " --storage keyring or helper"
            ),
        ),
        (("token", "show", "--no-login"), "select a storage that stores the token, such as --storage file"),
        (("token", "status"), "select a storage that stores the token, such as --storage file"),
    ],
)
def test_a_login_is_not_suggested_if_it_would_store_nothing(xapi: Xapi, command: tuple[str, ...], hint: str) -> None:
    env = {"XAPI_BASE_URL": "api.test", "XAPI_USERNAME": "me", "XAPI_STORAGE": "none"}

    assert xapi(*command, env=env).err.endswith(f"; {hint}\n")
