"""Show the main job."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from subprocess import CompletedProcess

    from xapi_cli.runtime import Runtime
    from xapi_cli.sandbox import Sandbox
    from xapi_cli.system.terminal import Terminal


def demo(ctx: typer.Context) -> None:
    """Show what xapi is for, in seconds.

    Logs in, calls the API, loses the token, goes on. Everything happens against
    a server of its own on this machine, in a temporary folder: your keyring,
    config, state and environment are not used.

    Examples:

    \b
      xapi demo
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from xapi_cli.sandbox import Sandbox

    runtime: Runtime = ctx.obj
    with Sandbox() as server, TemporaryDirectory(prefix="xapi-demo-") as folder:
        environ = _private_environ(runtime.environ, Path(folder))
        _Story(runtime.terminal, server, Path(folder), environ).tell()


class _Story:
    """Runs each command as a process of its own, shows it, and believes no word that it has not checked."""

    def __init__(self, terminal: "Terminal", server: "Sandbox", folder: "Path", environ: "Mapping[str, str]") -> None:
        self._show = terminal.out
        self._server = server
        self._folder = folder
        self._environ = environ

    def tell(self) -> None:
        self._introduce()
        self._log_in()
        first = self._show_token()
        answer = self._request()
        self._kill_the_token()
        self._request_again(answer)
        self._check("the stored token is a new one", self._token() not in {"", first})
        self._show("\nThat is all. Now with your own server: xapi login")

    def _introduce(self) -> None:
        self._show("A sandbox server now runs on this machine. The keyring,")
        self._show("configuration and state that are yours stay untouched.")

    def _log_in(self) -> None:
        from xapi_cli.sandbox import MASTER

        self._show("\n1. Log in. The password is in XAPI_PASSWORD here, as in CI;")
        self._show("   on your terminal xapi asks for it.\n")
        self._run("login", "--base-url", self._server.base_url, "--username", MASTER.email)
        self._check("there was one login", self._server.logins == 1)

    def _show_token(self) -> str:
        self._show("\n2. The token is stored, for any tool that wants one.\n")
        self._run("token", "show", shown=_masked)
        token = self._token()
        self._check("the server knows the token", self._server.user_of(token) is not None)
        return token

    def _request(self) -> str:
        self._show("\n3. Call the API with it.\n")
        answer = self._run("request", "/x-api/me").stdout
        self._check("the answer tells who we are", '"email":"master@example.com"' in answer)
        self._check("the stored token was used", self._server.logins == 1)
        return answer

    def _kill_the_token(self) -> None:
        self._show("\n4. The server forgets the token, weeks before its time.\n")
        killed = self._server.kill_tokens()
        self._show(f"   (on the server: {killed} token killed)")
        self._check("one token was killed", killed == 1)

    def _request_again(self, answer: str) -> None:
        self._show("\n5. The same call again: xapi meets the 401, logs in by")
        self._show("   itself, and sends the request once more.\n")
        again = self._run("request", "/x-api/me")
        self._check("the answer is the same", again.stdout == answer)
        self._check("xapi says that it logged in", again.stderr.startswith("xapi: "))
        self._check("the server refused once", self._server.unauthorized == 1)
        self._check("there was one more login", self._server.logins == 2)

    def _run(self, *words: str, shown: "Callable[[str], str]" = str) -> "CompletedProcess[str]":
        """Run xapi with *words*, show what a person would see, and stop the story if it failed."""
        self._show_indented(f"$ xapi {' '.join(words)}")
        ended = self._started(words)
        for line in (ended.stderr + shown(ended.stdout)).splitlines():
            self._show_indented(line)
        self._check(f"`xapi {words[0]}` ends with 0, not {ended.returncode}", ended.returncode == 0)
        return ended

    def _show_indented(self, line: str) -> None:
        from shutil import get_terminal_size
        from textwrap import wrap

        width = min(get_terminal_size().columns, 80)
        pieces = wrap(
            line, width, initial_indent="   ", subsequent_indent="     ", break_long_words=False, break_on_hyphens=False
        )
        self._show("\n".join(pieces))

    def _token(self) -> str:
        return self._started(("token", "show", "--no-login")).stdout.rstrip("\n")

    def _started(self, words: "tuple[str, ...]") -> "CompletedProcess[str]":
        import subprocess
        import sys

        from xapi_cli.errors import XapiError

        try:
            return subprocess.run(
                [sys.executable, "-m", "xapi_cli", *words],
                cwd=self._folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                encoding="utf-8",
                timeout=30,
            )
        except subprocess.TimeoutExpired as error:
            raise XapiError(f"the demo failed: `xapi {words[0]}` took longer than 30 s") from error

    def _check(self, claim: str, holds: bool) -> None:
        from xapi_cli.errors import XapiError

        if not holds:
            raise XapiError(f"the demo failed: it does not hold that {claim}", hint="the lines above tell more")


def _private_environ(environ: "Mapping[str, str]", folder: "Path") -> dict[str, str]:
    """Return *environ* without what may change how xapi behaves, and with everything it writes in *folder*."""
    from xapi_cli.sandbox import MASTER

    kept = {name: value for name, value in environ.items() if not _means_something(name)}
    return kept | {
        "HOME": str(folder),
        "USERPROFILE": str(folder),
        "PYTHONPATH": _import_path(environ),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "XAPI_CONFIG_DIR": str(folder / "config"),
        "XAPI_PASSWORD": MASTER.password,
        "XAPI_STATE_DIR": str(folder / "state"),
        "XAPI_STORAGE": "file",
    }


def _means_something(name: str) -> bool:
    foreign = {"CI", "GITHUB_ACTIONS", "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    return name.upper().startswith(("XAPI_", "XDG_")) or name.upper().endswith("_PROXY") or name.upper() in foreign


def _import_path(environ: "Mapping[str, str]") -> str:
    """Return a path on which the children find this very package, also when it runs from a checkout."""
    import os
    from pathlib import Path

    import xapi_cli

    here = str(Path(xapi_cli.__file__).parent.parent)
    return os.pathsep.join(filter(None, [here, environ.get("PYTHONPATH")]))


def _masked(token: str) -> str:
    return f"{token[:4]}… ({len(token.rstrip())} characters, masked here)"
