"""`xapi demo`: the main workflow in a few seconds, without an account."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from xapi_cli.errors import XapiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xapi_cli.context import Context

_TIMEOUT = 30  # seconds for each command
_IGNORED = frozenset({"CI", "GITHUB_ACTIONS", "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR"})


def demo(ctx: typer.Context) -> None:
    """Show the main workflow on a local test server.

    Logs in, sends a request, invalidates the token on the server, and sends the
    request again. The server runs on this machine and the files are in a
    temporary directory: your keyring, configuration, state and environment are
    not used.

    Examples:

    \b
      xapi demo
    """
    from xapi_cli.features.sandbox import MASTER, Sandbox

    context: Context = ctx.obj
    show, strong = context.terminal.print, context.terminal.style
    with Sandbox() as server, TemporaryDirectory(prefix="xapi-demo-") as directory:
        environ = _isolated(context.environ, directory) | {"XAPI_PASSWORD": MASTER.password}

        def step(title: str, rest: str) -> None:
            show(f"\n{strong('strong', title)} {rest}\n")

        def xapi(*args: str, shown: "Callable[[str], str]" = str) -> None:
            show(f"   $ {strong('name', ' '.join(('xapi', *args)))}")
            done = _run(args, directory, environ)
            for line in (done.stderr + shown(done.stdout)).splitlines():
                show(f"   {line}")
            if done.returncode:
                what = f"the demo failed: `xapi {args[0]}` ended with exit code {done.returncode}"
                raise XapiError(what, hint="see the output above")

        show("A sandbox server now runs on this machine. Your keyring, configuration and state are not used.")
        step("1. Log in.", "The password comes from XAPI_PASSWORD, as in CI;\n   on a terminal, xapi prompts for it.")
        xapi("login", server.base_url, "--username", MASTER.email)
        step("2. Print the token,", "for other tools. It is stored.")
        xapi("token", "show", shown=_masked)
        step("3. Send a request", "with the token.")
        xapi("request", "/x-api/me")
        step("4. The server invalidates the token", "before it expires.")
        show(f"   (on the server: {server.revoke_tokens()} token invalidated)")
        step("5. Send the same request.", "It gets 401: xapi logs in again\n   automatically and resends it.")
        xapi("request", "/x-api/me")
        show("\nThe demo is complete. To use your own server, install xapi (see docs/install.md) and run: xapi login")


def _run(args: tuple[str, ...], directory: str, environ: "Mapping[str, str]") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [sys.executable, "-m", "xapi_cli", *args],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise XapiError(f"the demo failed: `xapi {args[0]}` did not complete within {_TIMEOUT} s") from error


def _isolated(environ: "Mapping[str, str]", directory: str) -> dict[str, str]:
    """Return *environ* without settings of xapi, with *directory* for all files."""
    import xapi_cli

    inherited = {name: value for name, value in environ.items() if not _is_setting(name.upper())}
    package = Path(xapi_cli.__file__).parent  # which child processes import, even from a checkout
    return inherited | {
        "HOME": directory,
        "USERPROFILE": directory,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(package.parent), environ.get("PYTHONPATH")])),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "XAPI_CONFIG_DIR": os.path.join(directory, "config"),
        "XAPI_NO_INPUT": "1",
        "XAPI_STATE_DIR": os.path.join(directory, "state"),
        "XAPI_STORAGE": "file",
    }


def _is_setting(name: str) -> bool:
    return name.startswith(("XAPI_", "XDG_")) or name.endswith("_PROXY") or name in _IGNORED


def _masked(token: str) -> str:
    return f"{token[:4]}… ({len(token.rstrip())} characters, masked here)"
