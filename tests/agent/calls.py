"""The calls that are compared with and without the agent."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.agent.api_server import PASSWORD, USERNAME
from tests.tools.documents import invocations


class Call(NamedTuple):
    """A call of xapi in its own HOME; SERVER in *args*, *env* and *files* is the base URL of the API.

    *files* are written before the call, to the working directory. *cold* marks a call that no worker serves.
    """

    args: Sequence[str]
    stdin: bytes | None = None
    env: Mapping[str, str | None] = {}
    files: Mapping[str, str] = {}
    logged_in: bool = True
    invalid: bool = False  # whether the server rejects the stored token
    concurrent: bool = False  # whether the order of the requests differs between runs
    cold: bool = False

    def __str__(self) -> str:
        words = [*self.args, *(f"{name}={value}" for name, value in self.env.items())]
        marks = [
            name for name, is_set in (("stdin", self.stdin is not None), ("invalid token", self.invalid)) if is_set
        ]
        return " ".join([*words, *marks, *([] if self.logged_in else ["logged out"])]) or "no arguments"


_LOGIN = {"XAPI_PASSWORD": PASSWORD}
_FILES = {"body.json": '{"a": 1}', "text.txt": "line 1\nline 2\n", "bad.json": "{"}
_LINES = "".join(f'{{"id":{number},"path":"/status/{200 + number}"}}\n' for number in range(5))
_MIXED = '{"path":"/echo","json":{"a":1}}\nnot json\n{"path":"/lost"}\n{"path":"/binary","id":"b"}\n{"nopath":1}\n'


def _request(*args: str, **more: object) -> Call:
    return Call(("request", *args), files=_FILES, **more)  # type: ignore[arg-type]  # the other fields


REQUESTS = [
    _request("/x-api/me"),
    _request("GET", "/x-api/me", "q==1", "q==ü", "X-A:b", "User-Agent:me"),
    _request("HEAD", "/x-api/me"),
    _request("DELETE", "/x-api/me", "-i"),
    _request("PURGE", "/x-api/me"),
    _request("/x-api/me", "-v"),
    _request("/x-api/me", "-v", "-i", "--meta", "-"),
    _request("/x-api/me", "--meta", "meta.json", "-o", "body"),
    _request("/x-api/me", "--quiet"),
    _request("/x-api/me", "-q", "access_token=s3cret", "-v"),
    _request("/x-api/me", "-H", "Accept:", "-H", "X-Empty: "),
    _request("/x-api/me", "--curl"),
    _request("/echo", "a=1", "n:=1.10", "--curl"),
    _request("/echo", "a=1", "n:=[1.10,true]", "name=Zoë"),
    _request("/echo", "a=@text.txt", "j:=@body.json"),
    _request("/echo", "j:=@bad.json"),
    _request("/echo", "a=1", "b=ü &", "--form"),
    _request("/echo", "file@text.txt", "a=1"),
    _request("/echo", "file@missing.txt"),
    _request("/echo", "-d", "@body.json"),
    _request("PUT", "/echo", "-d", "text"),
    _request("/echo", "-d", "@-", stdin=b"from stdin\x00\xff"),
    _request("/echo", "-d", "@-", stdin=b""),
    _request("/echo", "-d", "@-"),
    _request("/echo", "-d", "@-", stdin=b"x" * 300_000),
    _request("/echo", "-d", "@-", "-o", "out", stdin=b"replayed", invalid=True, env=_LOGIN),
    _request("/echo", "a=1", "-d", "both"),
    *[_request(f"/status/{status}") for status in (201, 204, 301, 304, 400, 403, 404, 418, 429, 500, 503)],
    _request("/status/404", "--error-body", "stderr"),
    _request("/status/500", "--error-body", "none", "-o", "out"),
    _request("/status/404", "--no-check-status"),
    _request("/redirect"),
    _request("/redirect", "--no-follow"),
    _request("POST", "/redirect", "a=1", "-v"),
    _request("/loop"),
    _request("/elsewhere", "--no-follow", "-v"),
    _request("/chunked"),
    _request("/gzip"),
    _request("/gzip", "-i"),
    _request("/binary"),
    _request("/binary", "-o", "out"),
    _request("/terminal"),
    _request("/empty"),
    _request("/until-close"),
    _request("/large"),
    _request("/large", "-o", "out", "--meta", "meta.json"),
    _request("/truncated"),
    _request("/truncated", "-o", "out"),
    _request("/cut-chunk"),
    _request("/malformed"),
    _request("/lost"),
    _request("POST", "/lost", "a=1"),
    _request("/never", "--timeout", "0.2"),
    _request("/never", "--max-time", "1.5"),
    _request("/unavailable-twice"),
    _request("/unavailable-twice", "--retry", "2", "-v"),
    _request("/unavailable-twice", "--retry", "1"),
    _request("https://evil.example.com/x-api/me"),
    _request("x-api/me"),
    _request("/x-api/../me"),
    _request("/x-api/me", "-o", "missing/out"),
    _request("/x-api/me", "-o", "."),
    _request("/x-api/me", "--retry", "101"),
    _request("/x-api/me", "--timeout", "soon"),
    _request("/x-api/me", "--tiemout", "1"),
    _request(),
    _request("/x-api/me", "", "="),
    _request("/x-api/me", "--base-url", "http://127.0.0.1:9"),
    _request("/x-api/me", "--base-url", "ftp://example.com"),
    _request("/x-api/me", "--ca-bundle", "missing.pem"),
    _request("/x-api/me", "-p", "staging"),
    _request("/x-api/me", env={"XAPI_PROFILE": "staging"}),
    _request("/x-api/me", env={"XAPI_TIMEOUT": "never"}),
    _request("/x-api/me", env={"XAPI_TOKEN": "supplied"}),
    _request("/x-api/me", env={"XAPI_TOKEN": "supplied\n"}),
    _request("/x-api/me", env={"http_proxy": "http://127.0.0.1:9"}),
    _request("/x-api/me", env={"http_proxy": "socks5://127.0.0.1:9"}),
    _request("/x-api/me", env={"FORCE_COLOR": "1"}),
    _request("/x-api/me", env={"NO_COLOR": "1", "COLUMNS": "40"}),
    _request("/x-api/me", env={"HOME": None}),
    _request("/x-api/me", env={"TZ": "Asia/Tokyo"}),
    _request("/x-api/me", env={"LANG": "C"}),
    _request("/x-api/me", env={"PYTHONWARNINGS": "ignore"}, cold=True),
    _request("/x-api/me", invalid=True),
    _request("/x-api/me", "-v", invalid=True, env=_LOGIN),
    _request("/x-api/me", "--no-login", invalid=True, env=_LOGIN),
    _request("/x-api/me", invalid=True, env={"XAPI_PASSWORD": "wrong"}),
    _request("/x-api/me", logged_in=False),
    _request("/x-api/me", logged_in=False, env=_LOGIN | {"XAPI_BASE_URL": "SERVER", "XAPI_USERNAME": USERNAME}),
    _request(
        "/x-api/me",
        "--storage",
        "none",
        logged_in=False,
        env=_LOGIN | {"XAPI_BASE_URL": "SERVER", "XAPI_USERNAME": USERNAME},
    ),
]
TOKENS = [
    Call(("token", "show")),
    Call(("token", "show", "--header")),
    Call(("token", "show", "--json")),
    Call(("token", "show", "--format", "env")),
    Call(("token", "show", "--format", "exec-credential")),
    Call(("token", "show", "--format", "yaml")),
    Call(("token", "show", "--min-ttl", "2h"), env=_LOGIN),
    Call(("token", "show", "--min-ttl", "30m")),
    Call(("token", "show", "--fresh"), env=_LOGIN),
    Call(("token", "show", "--fresh", "--no-login")),
    Call(("token", "show"), logged_in=False),
    Call(("token", "status")),
    Call(("token", "status", "--min-ttl", "1d")),
    Call(("token", "status", "--check", "/x-api/me")),
    Call(("token", "status", "--check", "/x-api/me"), invalid=True),
    Call(("token", "status"), logged_in=False),
]
LOGINS = [
    Call(("login", "--password-stdin"), stdin=PASSWORD.encode() + b"\n"),
    Call(("login", "--password-stdin"), stdin=b"wrong\n"),
    Call(("login", "--password-stdin"), stdin=b""),
    Call(("login",), env=_LOGIN),
    Call(("login", "--remember"), env=_LOGIN),
    Call(("login", "--password-command", "echo correct horse")),
    Call(("login", "--password-command", "false")),
    Call(("login", "-p", "two", "--base-url", "SERVER", "-u", "two@example.com"), env=_LOGIN),
    Call(("login", "--no-input"), logged_in=False),
    Call(("logout",)),
    Call(("logout", "--all")),
    Call(("logout",), logged_in=False),
]
BATCHES = [
    Call(("batch", "-j", "1"), stdin=_LINES.encode()),
    Call(("batch", "--ordered"), stdin=_LINES.encode(), concurrent=True),
    Call(("batch", "--ordered", "-j", "1", "--journal", "journal", "lines"), files={"lines": _LINES}),
    Call(("batch", "-j", "1", "--fail-fast"), stdin=_MIXED.encode()),
    Call(("batch", "-j", "1"), stdin=_MIXED.encode()),
    Call(("batch", "missing")),
    Call(("batch", "-j", "1"), stdin=_LINES.encode(), invalid=True, env=_LOGIN),
    Call(("batch",), stdin=b""),
]
EXECS = [
    Call(("exec", "--", "sh", "-c", 'echo "$XAPI_TOKEN" "$XAPI_BASE_URL" "$XAPI_TOKEN_BASE_URL" "$XAPI_PASSWORD"')),
    Call(("exec", "--", "sh", "-c", "cat; exit 7"), stdin=b"data"),
    Call(("exec", "--", "sh", "-c", "kill -TERM $$")),
    Call(("exec", "--", "missing-command")),
    Call(("exec", "--", "./body.json"), files=_FILES),
    Call(("exec",)),
]
PROFILES = [
    Call(("profile", "list")),
    Call(("profile", "list", "--json")),
    Call(("profile", "show")),
    Call(("profile", "show", "staging")),
    Call(("profile", "set", "timeout", "10")),
    Call(("profile", "set", "timeout", "soon")),
    Call(("profile", "set", "storage", "file", "-p", "two")),
    Call(("profile", "use", "missing")),
    Call(("profile", "remove", "default")),
]
OTHERS = [
    Call(()),
    Call(("--version",)),
    Call(("requst", "/x-api/me")),
    Call(("doctor",)),
    Call(("doctor", "--json"), logged_in=False),
    Call(("help", "exit-codes")),
    Call(("help", "missing")),
]
HELP = [Call((*args, "--help"), logged_in=False) for args in invocations() if args[:1] != ("agent",)]

# What replaces its process, runs for long, or starts processes.
_COLD_COMMANDS = {("batch",), ("demo",), ("exec",), ("proxy",), ("sandbox",)}

CALLS = [
    call._replace(cold=call.cold or call.args[:1] in _COLD_COMMANDS)
    for call in (*REQUESTS, *TOKENS, *LOGINS, *BATCHES, *EXECS, *PROFILES, *OTHERS, *HELP)
]
