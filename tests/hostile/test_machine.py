"""Exhausted resources, a stopped process, and files in the current directory that Python might import."""

from pathlib import Path

import pytest

from tests.commands.api import bearing
from tests.support.combinations import combined
from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.servers import OK, Server, request, send
from xapi_cli.features.sandbox import Sandbox

CANARY = "canary-of-a-password"


def _within(xapi: Xapi, limit: str, *args: str, env: dict[str, str]) -> Outcome:
    """Run the program with the limits that `ulimit` sets."""
    process = xapi.start(*args, env=env, argv=("bash", "-c", f'ulimit {limit}; exec "$@"', "bash", str(PROGRAM)))
    out, err = process.communicate()
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(
    ("limit", "args"),
    combined(["-n 6", "-n 8", "-v 30000"], ["login", "request /x-api/me", "token show", "exec -- true", "doctor"]),
)
def test_exhausted_descriptors_or_memory_are_one_error_line(
    xapi: Xapi, sandbox: Sandbox, limit: str, args: str
) -> None:
    outcome = _within(xapi, limit, *args.split(), env=sandbox.settings)

    assert "Traceback" not in outcome.err
    if outcome.code and "xapi: " not in outcome.err:
        return  # Python itself could not start
    assert sandbox.settings["XAPI_PASSWORD"] not in outcome.out + outcome.err
    if outcome.code and args != "doctor":
        assert len([line for line in outcome.err.splitlines() if line.startswith("xapi: error: ")]) == 1
        assert "this is a bug" not in outcome.err or limit.startswith(("-v", "-n 6"))  # Python itself fails then


def test_a_module_in_the_current_directory_is_not_imported(xapi: Xapi, sandbox: Sandbox) -> None:
    directory = xapi.home / "trap"
    directory.mkdir()
    trap = "import pathlib; pathlib.Path('sprung').touch(); raise SystemExit('sprung')"
    for name in ("keyring", "httpx", "typer", "json", "ssl", "resource", "xapi_cli", "sitecustomize", "h11"):
        (directory / f"{name}.py").write_text(trap)

    for args in (("login",), ("request", "/x-api/me"), ("token", "status"), ("doctor",)):
        assert xapi(*args, env=sandbox.settings, cwd=directory).code == 0
    assert not (directory / "sprung").exists()


def test_no_setting_is_read_from_the_current_directory(xapi: Xapi, sandbox: Sandbox) -> None:
    with Server([request(), send(OK)]) as other:
        directory = xapi.home / "repository"
        (directory / "xapi").mkdir(parents=True)
        evil = f'[profiles.default]\nbase_url = "{other.url}"\nusername = "me"\n'
        for name in ("config.toml", "xapi/config.toml", "xapi.toml", ".xapi.toml", ".xapirc", "pyproject.toml"):
            (directory / name).write_text(evil)
        (directory / ".env").write_text(f"XAPI_BASE_URL={other.url}\nXAPI_TOKEN=x\n")
        outcome = xapi("request", "/x", cwd=directory, env={"XAPI_TOKEN": "canary"})
        inside = xapi("request", "/x-api/me", cwd=directory, env=sandbox.settings)

        assert (outcome.code, outcome.out) == (2, "")
        assert "no base URL" in outcome.err
        assert inside.code == 0
        assert other.received == []


def test_a_missing_or_foreign_home_directory_causes_no_crash(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        env = {**bearing(server), "HOME": str(xapi.home / "missing"), "XAPI_CONFIG_DIR": None, "XAPI_STATE_DIR": None}
        gone = Path(xapi.home / "gone")
        gone.mkdir()
        process = xapi.start(
            "-c", f'cd {gone}; rmdir {gone}; exec "$@"', "bash", str(PROGRAM), "request", "/x", env=env, argv=("bash",)
        )
        out, err = process.communicate()

    assert (process.returncode, out, err) == (0, b"ok", b"")
    assert not (xapi.home / "missing").exists()
