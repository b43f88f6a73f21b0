"""Scenes in which every command runs: a server and its behavior, secrets, and where the command can leak them."""

import os
import re
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.leaks.canary import OLD, PASSWORD, SECRETS, Api
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import OK, Server, serve
from xapi_cli.store.file import FileStore
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

USERNAME = "me@example.com"
BEHAVIORS = ["works", "revokes the token", "rejects", "redirects", "repeats", "disconnects", "sends garbage"]


@dataclass(frozen=True)
class Command:
    """A command to run; *stored*: a token is stored before; *prints*: stdout contains a token."""

    args: tuple[str, ...]
    stored: bool = True
    prints: bool = False
    passes_on: bool = False  # to a child process, in its environment
    stdin: bytes = b""
    source: str = "environment"  # of the password


COMMANDS = {
    "login": Command(("login",), stored=False),
    "login --password-stdin": Command(("login", "--password-stdin"), stored=False, source="stdin"),
    "login --password-command": Command(
        ("login", "--password-command", "cat password"), stored=False, source="command"
    ),
    "token show": Command(("token", "show"), stored=False, prints=True),
    "token show --json": Command(("token", "show", "--json"), prints=True),
    "token status": Command(("token", "status", "--check", "/x")),
    "request": Command(("request", "-v", "/x", "--retry", "1", "--meta", "meta")),
    "request without a token": Command(("request", "-v", "POST", "/x", "a=b"), stored=False),
    "-o": Command(("request", "/x", "-o", "out", "-i", "-v")),
    "--curl": Command(("request", "/x", "--curl")),
    "exec": Command(("exec", "--", "sh", "-c", "printenv HOME"), passes_on=True),
    "exec without a token": Command(("exec", "--", "sh", "-c", "exit 3"), stored=False, passes_on=True),
    "batch": Command(("batch", "--journal", "journal", "-"), stdin=b'{"path": "/x"}\n{"path": "/y", "json": 1}\n'),
    "doctor": Command(("doctor", "--json")),
    "profile show": Command(("profile", "show", "--json")),
    "logout": Command(("logout",)),
}


class Scene:
    """A home directory, an API that behaves as stated, another server, and the observed effects of a command."""

    def __init__(self, xapi: Xapi, behavior: str, stack: ExitStack) -> None:
        self.xapi = xapi
        self.elsewhere = stack.enter_context(Server([serve(OK)]))
        self.api = stack.enter_context(Api(behavior, self.elsewhere.url))
        self.env = {
            "XAPI_BASE_URL": self.api.url,
            "XAPI_USERNAME": USERNAME,
            "XAPI_DEBUG": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.captured: dict[str, bytes] = {}

    def store(self) -> None:
        now = datetime.now(UTC)
        token = Token(OLD.text, "bearer", now, now + timedelta(days=1))
        store = FileStore(StoreOptions(StateDirectory(self.xapi.state), {}, print))
        store.write(Identity(self.api.url, USERNAME), Record(token))

    def traced(self, command: Command) -> int:
        """Run *command* with pipes, and trace the programs that it starts and the files that it writes."""
        if command.stored:
            self.store()
        stdin = command.stdin
        if command.source == "environment":
            self.env["XAPI_PASSWORD"] = PASSWORD.text
        elif command.source == "stdin":
            stdin = PASSWORD.text.encode() + b"\n"
        else:
            (self.xapi.home / "password").write_text(PASSWORD.text)
        log = self.xapi.home / "trace"
        calls = "trace=execve,openat,creat,rename,prctl"
        trace = ("strace", "-f", "-qq", "-v", "-y", "-s", "9999", "-o", str(log), "-e", calls)
        readable = ("-e", "inject=prctl:retval=0")  # otherwise only root could read the arguments of its system calls
        process = self.xapi.start(
            *command.args, stdin=subprocess.PIPE, env=self.env, argv=(*trace, *readable, str(PROGRAM))
        )
        self.captured["stdout"], self.captured["stderr"] = process.communicate(stdin)
        logged = log.read_text(errors="surrogateescape").splitlines()
        log.unlink()
        (self.xapi.home / "password").unlink(missing_ok=True)
        self._capture_children([call for call in logged if "execve(" in call][1:])
        self._check_files(logged)
        return process.returncode

    def found(self) -> set[tuple[str, str]]:
        """Return the secrets that were found, by place."""
        self.captured |= {
            "token endpoint": bytes(self.api.logins),
            "API": bytes(self.api.calls),
            "elsewhere": b"".join(self.elsewhere.received),
        }
        for path in self.xapi.home.rglob("*"):
            if path.is_file():
                self.captured[_place(path.relative_to(self.xapi.home))] = path.read_bytes()
        return {
            (secret.name, place)
            for place, data in self.captured.items()
            for secret in SECRETS
            if secret.encodings(data)
        }

    def _capture_children(self, calls: list[str]) -> None:
        pattern = re.compile(r"execve\((\".*?\", \[.*?\]), (\[.*\])", re.DOTALL)
        matches = [match for call in calls if (match := pattern.search(call))]
        assert len(matches) == len(calls)
        self.captured["argv of children"] = "\n".join(match[1] for match in matches).encode("utf-8", "surrogateescape")
        self.captured["environment of children"] = "\n".join(match[2] for match in matches).encode(
            "utf-8", "surrogateescape"
        )

    def _check_files(self, calls: list[str]) -> None:
        pattern = re.compile(r'(?:openat\((?:AT_FDCWD|\d+)<(.*?)>, |creat\()"(.*?)", [^)]*(?:O_WRONLY|O_RDWR|O_CREAT)')
        written = [os.path.join(match[1] or "", match[2]) for call in calls if (match := pattern.search(call))]
        assert [
            path for path in written if path.startswith("/") and not path.startswith((str(self.xapi.home), "/dev/"))
        ] == []


def _place(path: Path) -> str:
    return "file store" if path.parts[:3] == ("state", "xapi", "tokens") else f"file {path}"
