"""Each fault is tried with several commands, and each command with every kind of fault: one clear line, in time."""

import ssl
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

import pytest
import trustme

from tests.hostile.faults import FAULTS, GROUPS, TOKEN, Fault, HostileServer
from tests.support.program import Xapi, measured
from tests.support.servers import OK, Server, free_port, full_backlog, serve
from xapi_cli.store.file import FileStore
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

PASSWORD = "canary-of-a-password"
STORED = "canary-of-a-stored-token"
USERNAME = "me@example.com"
SECRETS = [secret.encode() for secret in (PASSWORD, STORED, "canary-of-a-proxy")]

LARGEST = 100 * 2**20  # bytes of resident memory
PAIRS_PER_FAULT = 4


@dataclass(frozen=True)
class Caller:
    """One command that encounters a fault: *target* is the requested resource, *stored*: a token is stored."""

    args: tuple[str, ...]
    target: str
    stored: bool = True
    stdin: bytes = b""


# Adjacent callers differ, because they alternate in this order.
CALLERS = {
    "login": Caller(("login",), "token", stored=False),
    "request": Caller(("request", "/x"), "api"),
    "token show": Caller(("token", "show"), "token", stored=False),
    "POST": Caller(("request", "/x", "-d", "@-"), "api", stdin=b"hello"),
    "token status --check": Caller(("token", "status", "--check", "/x"), "check"),
    "upload": Caller(("request", "/x", "f@large"), "api"),
    "exec": Caller(("exec", "--", "printenv", "HOME"), "token", stored=False),
    "-o": Caller(("request", "/x", "-o", "out"), "api"),
    "doctor": Caller(("doctor",), "doctor"),
    "request without a token": Caller(("request", "/x"), "token", stored=False),
    "login again": Caller(("login",), "token"),
    "request -v": Caller(("request", "-v", "/x"), "api"),
    "batch": Caller(("batch", "--ordered"), "batch", stdin=b'{"path": "/x"}\n{"path": "/y"}\n'),
    "logout": Caller(("logout",), "nothing"),
    "--retry": Caller(("request", "/x", "--retry", "1"), "api"),
    "token show --fresh": Caller(("token", "show", "--fresh"), "token"),
}


def _pairs() -> dict[str, list[str]]:
    """Return for each fault the commands that encounter it, alternating within a group."""
    turns: dict[str, Iterator[str]] = defaultdict(lambda: cycle(CALLERS))
    return {name: list(islice(turns[fault.group], PAIRS_PER_FAULT)) for name, fault in FAULTS.items()}


PAIRS = _pairs()


def test_each_fault_is_tried_with_two_commands_and_each_group_with_every_command() -> None:
    commands = {name: {CALLERS[caller].args[0] for caller in callers} for name, callers in PAIRS.items()}
    met = {caller: {FAULTS[name].group for name, callers in PAIRS.items() if caller in callers} for caller in CALLERS}

    assert {name for name in PAIRS if len(commands[name]) < 2} == set()
    assert {caller for caller in CALLERS if met[caller] != set(GROUPS)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_clear_error_line_in_bounded_time_and_memory(tmp_path: Path, name: str) -> None:
    _check(tmp_path, FAULTS[name], PAIRS[name])


def _check(directory: Path, fault: Fault, callers: list[str]) -> None:
    """Run *callers* concurrently with *fault*, and check the outcome of each."""
    with ExitStack() as stack:
        elsewhere = stack.enter_context(Server([serve(OK)]))
        server = HostileServer(fault.script, tls=_certified() if fault.tls else None)
        server.elsewhere = elsewhere.name
        stack.enter_context(server)
        places = {"url": server.url, "name": server.name, "closed": free_port()}
        places["full"] = stack.enter_context(full_backlog())
        encounters = [
            Encounter(Xapi(directory / str(number)), CALLERS[name], fault, places)
            for number, name in enumerate(callers)
        ]
        for encounter in encounters:
            stack.callback(encounter.xapi.end)
            encounter.begin()
        for encounter in encounters:
            encounter.check()
        assert not any(secret in data for data in elsewhere.received for secret in SECRETS)
        if all(CALLERS[name].target == "nothing" for name in callers):
            assert server.received == []


class Encounter:
    """One command in its own home directory, and the fault that it encounters."""

    def __init__(self, xapi: Xapi, caller: Caller, fault: Fault, places: Mapping[str, object]) -> None:
        self.caller = caller
        self.fault = fault
        self.xapi = xapi
        self.base_url = fault.base_url.format(**places)
        env = {name: value.format(**places) for name, value in fault.env.items()}
        self.env = {
            "XAPI_BASE_URL": self.base_url,
            "XAPI_USERNAME": USERNAME,
            "XAPI_PASSWORD": PASSWORD,
            "XAPI_TIMEOUT": "1" if 12 in fault.token else "20",  # the machine may be busy
            **env,
        }
        self._out, self._err, self._stdin, self._peak = (
            xapi.home / name for name in ("stdout", "stderr", "stdin", "peak")
        )
        self._stdin.write_bytes(caller.stdin)
        with (xapi.home / "large").open("wb") as file:
            file.truncate(3_000_000)
        if caller.stored:
            self._store()
        self._before = self._stored()

    def begin(self) -> None:
        """Run the command against the fault."""
        with (
            self._stdin.open("rb") as stdin,
            open("/dev/null" if self.fault.flood else self._out, "wb") as out,
            self._err.open("wb") as err,
        ):
            command = measured(self._peak, *self.caller.args)
            self._process = self.xapi.start(argv=command, stdin=stdin, stdout=out, stderr=err, env=self.env)

    def check(self) -> None:
        """Check the exit code, the output and the files of the command."""
        code = self._process.wait()
        err = self._err.read_bytes()
        out = self._out.read_bytes() if self._out.exists() else b""
        details = (self.caller.args, code, out[:2000], err)
        assert code in self._expected(), details
        assert (peak := int(self._peak.read_text())) < LARGEST, (details, peak)
        self._check_messages(err.decode(), code, details)
        secrets = [*SECRETS, TOKEN.encode()] if self.caller.target == "token" else SECRETS
        assert not any(secret in out + err for secret in secrets), details
        assert self._stored() == ({} if self.caller.target == "nothing" else self._before), details
        assert list(self.xapi.temporary.iterdir()) == [], details
        assert not self.xapi.config.exists(), details
        output = self.xapi.home / "out"
        assert output.exists() == ("-o" in self.caller.args and code == 0), details
        output.unlink(missing_ok=True)

    def _expected(self) -> frozenset[int]:
        fault, target = self.fault, self.caller.target
        by_what = {"api": fault.api, "batch": fault.batch, "token": fault.token, "check": fault.check}
        return by_what.get(target, frozenset({0, 1} if target == "doctor" else {0}))

    def _check_messages(self, err: str, code: int, details: object) -> None:
        lines = err.splitlines()
        heads = (">", "<", "*") if "-v" in self.caller.args else ()
        assert all(line.isprintable() and line.startswith(("xapi: ", *heads)) for line in lines), details
        errors = [line for line in lines if line.startswith("xapi: error: ")]
        if self.caller.target == "doctor":
            return
        assert len(errors) == (code != 0), details
        if errors:
            assert errors == lines[-1:], details
            assert "unexpected failure" not in errors[0], details

    def _store(self) -> None:
        now = datetime.now(UTC)
        token = Token(STORED, "bearer", now, now + timedelta(days=1))
        store = FileStore(StoreOptions(StateDirectory(self.xapi.state), {}, print))
        store.write(Identity(self.base_url, USERNAME), Record(token))

    def _stored(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.xapi.state / "tokens").glob("*")}


def _certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context
