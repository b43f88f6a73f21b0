"""Run the main workflow against a sandbox server, explain each step, and check that it worked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import xapi_cli
from xapi_cli.errors import XapiError
from xapi_cli.features.sandbox import MASTER, Sandbox, pseudoterminal
from xapi_cli.system.layout import wrapped

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal

_XAPI = (sys.executable, "-m", "xapi_cli")
_INDENT = "   "
_MAX_COLUMNS = 80
_TIMEOUT = 30  # seconds for each command
_IGNORED = frozenset({"CI", "GITHUB_ACTIONS", "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR"})


def run(terminal: "Terminal", environ: Mapping[str, str]) -> None:
    """Run the demo; raises XapiError if a step has an unexpected result."""
    with Sandbox() as server, TemporaryDirectory(prefix="xapi-demo-") as directory:
        _Demo(terminal, server, Path(directory), _isolated(environ, Path(directory))).run()


class _Demo:
    """Runs each command as a separate process, prints it with its output, and checks the result."""

    def __init__(self, terminal: "Terminal", server: Sandbox, directory: Path, environ: Mapping[str, str]) -> None:
        self._print, self._style = terminal.print, terminal.style
        self._on_terminal = terminal.stdout_is_terminal and pseudoterminal.IS_SUPPORTED
        self._columns = min(terminal.stdout_columns, _MAX_COLUMNS) - len(_INDENT)
        self._server = server
        self._directory = directory
        self._environ = environ

    def run(self) -> None:
        self._print_text(
            "A sandbox server now runs on this machine. Your keyring, configuration and state are not used."
        )
        self._log_in()
        first_token = self._show_token()
        response = self._send_request()
        self._invalidate_token()
        self._send_request_again(response)
        self._expect("a new stored token", self._token() not in {"", first_token})
        install = "" if _is_installed(self._environ) else "install xapi (see docs/install.md), then run: "
        self._print("")
        self._print_text(f"The demo is complete. To use your own server: {install}xapi login")

    def _log_in(self) -> None:
        self._print_step(
            "1. Log in.", "The password comes from XAPI_PASSWORD, as in CI;\n   on a terminal, xapi prompts for it."
        )
        self._xapi("login", "--base-url", self._server.base_url, "--username", MASTER.email)
        self._expect("one login", self._server.logins == 1)

    def _show_token(self) -> str:
        self._print_step("2. Print the token,", "for other tools. It is stored.")
        self._xapi("token", "show", shown=_masked)
        token = self._token()
        self._expect("a token that the server accepts", self._server.user_of(token) is not None)
        return token

    def _send_request(self) -> str:
        self._print_step("3. Send a request", "with the token.")
        response = self._xapi("request", "/x-api/me").stdout
        self._expect("a response with the user", f'"{MASTER.email}"' in response)
        self._expect("no other login", self._server.logins == 1)
        return response

    def _invalidate_token(self) -> None:
        self._print_step("4. The server invalidates the token", "before it expires.")
        revoked = self._server.revoke_tokens()
        self._print(_INDENT + self._style("faint", f"(on the server: {revoked} token invalidated)"))
        self._expect("one invalidated token", revoked == 1)

    def _send_request_again(self, response: str) -> None:
        self._print_step(
            "5. Send the same request.", "It gets 401: xapi logs in again\n   automatically and resends it."
        )
        again = self._xapi("request", "/x-api/me")
        self._expect("the same response", again.stdout == response)
        self._expect("a note on stderr", "xapi: " in again.stderr)
        self._expect("one 401", self._server.unauthorized == 1)
        self._expect("one more login", self._server.logins == 2)

    def _xapi(self, *args: str, shown: Callable[[str], str] = str) -> "subprocess.CompletedProcess[str]":
        """Run xapi with *args* and print the command and its output; raises XapiError if it fails."""
        self._print(f"{_INDENT}$ {self._style('name', ' '.join(('xapi', *args)))}")
        done = self._on_a_terminal(args) if self._on_terminal else self._completed(args)
        for line in (done.stderr + shown(done.stdout)).splitlines():
            self._print_indented(line)
        self._expect(f"exit code 0 of `xapi {args[0]}`, not {done.returncode}", done.returncode == 0)
        return done

    def _token(self) -> str:
        return self._completed(("token", "show", "--no-login")).stdout.rstrip("\n")

    def _completed(self, args: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        with _timeout_reported(args):
            return subprocess.run(
                [*_XAPI, *args],
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                encoding="utf-8",
                timeout=_TIMEOUT,
            )

    def _on_a_terminal(self, args: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        """Run xapi as the user would: with colors, indented JSON and wrapped messages."""
        with _timeout_reported(args):
            return pseudoterminal.run(
                [*_XAPI, *args], cwd=self._directory, env=self._environ, columns=self._columns, timeout=_TIMEOUT
            )

    def _print_text(self, text: str) -> None:
        self._print(wrapped(text, self._columns + len(_INDENT), indent=""))

    def _print_step(self, title: str, rest: str) -> None:
        self._print(f"\n{self._style('strong', title)} {rest}\n")

    def _print_indented(self, line: str) -> None:
        if not self._on_terminal:  # otherwise, xapi has wrapped it
            line = wrapped(line, self._columns).replace("\n", f"\n{_INDENT}")
        self._print(_INDENT + line)

    def _expect(self, expectation: str, is_met: bool) -> None:
        if not is_met:
            raise XapiError(f"the demo failed: expected {expectation}", hint="see the output above")


@contextmanager
def _timeout_reported(args: tuple[str, ...]) -> Iterator[None]:
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise XapiError(f"the demo failed: `xapi {args[0]}` did not complete within {_TIMEOUT} s") from error


def _isolated(environ: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return *environ* without settings of xapi, with *directory* for all files."""
    inherited = {name: value for name, value in environ.items() if not _is_setting(name)}
    return inherited | {
        "HOME": str(directory),
        "USERPROFILE": str(directory),
        "PYTHONPATH": _import_path(environ),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "XAPI_CONFIG_DIR": str(directory / "config"),
        "XAPI_NO_INPUT": "1",
        "XAPI_PASSWORD": MASTER.password,
        "XAPI_STATE_DIR": str(directory / "state"),
        "XAPI_STORAGE": "file",
    }


def _is_installed(environ: Mapping[str, str]) -> bool:
    """Return whether the shell finds `xapi`, which it does not if `make demo` runs it in a checkout."""
    return shutil.which("xapi", path=environ.get("PATH")) is not None


def _is_setting(name: str) -> bool:
    name = name.upper()
    return name.startswith(("XAPI_", "XDG_")) or name.endswith("_PROXY") or name in _IGNORED


def _import_path(environ: Mapping[str, str]) -> str:
    """Return a module search path with which child processes import this package, even from a checkout."""
    package = Path(xapi_cli.__file__).parent
    return os.pathsep.join(filter(None, [str(package.parent), environ.get("PYTHONPATH")]))


def _masked(token: str) -> str:
    return f"{token[:4]}… ({len(token.rstrip())} characters, masked here)"
