"""XAPI_TOKEN_FILE: the token in a file that another program replaces."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.combinations import combined
from tests.support.program import Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox
from xapi_cli.features.sandbox.accounts import User

Env = dict[str, str | None]
ME = ("request", "/x-api/me")
TOO_LARGE = b"x" * 65_537


class RotatingSandbox(Sandbox):
    """Accepts only the token *valid*; *on_rejection* is called before each 401."""

    valid = "new-token"

    def __init__(self) -> None:
        super().__init__()
        self.on_rejection: Callable[[], object] = lambda: None

    def user_of(self, token: str) -> User | None:
        if token == self.valid:
            return MASTER
        self.on_rejection()
        return None


@pytest.fixture
def service() -> Iterator[RotatingSandbox]:
    with RotatingSandbox() as server:
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("old-token")
    return file


@pytest.fixture
def env(service: RotatingSandbox, token_file: Path) -> Env:
    return {"XAPI_BASE_URL": service.base_url, "XAPI_TOKEN_FILE": str(token_file)}


def _replace(file: Path, token: str) -> None:
    """Replace *file* atomically, as Kubernetes does; many requests may cause this at the same time."""
    new = file.with_name(f"{threading.get_ident()}.new")
    new.write_text(token)
    new.replace(file)


def test_each_command_reads_the_file(xapi: Xapi, env: Env, token_file: Path) -> None:
    for content in ("new-token", "new-token\n", " \tnew-token \n\n", "new-token\r\n"):
        token_file.write_text(content)
        assert xapi(*ME, env=env).code == 0

    assert json.loads(xapi(*ME, env=env).out)["email"] == MASTER.email
    assert xapi("token", "show", env=env).out == "new-token\n"
    assert xapi("exec", "--", "sh", "-c", 'echo "$XAPI_TOKEN ${XAPI_TOKEN_FILE-unset}"', env=env).out == (
        "new-token unset\n"
    )
    assert json.loads(xapi("token", "show", "--json", env=env).out)["source"] == "env"
    assert json.loads(xapi("batch", env=env, input='{"path": "/x-api/me"}\n').out)["status"] == 200
    token_file.write_text("another")
    assert xapi("token", "show", env=env).out == "another\n"


def test_a_shell_that_evaluates_the_env_format_uses_that_token_instead_of_the_file(
    xapi: Xapi, env: Env, service: RotatingSandbox, token_file: Path
) -> None:
    token_file.write_text("new-token")
    shown = xapi("token", "show", "--format", "env", env=env).out
    assert shown.splitlines()[2:] == ["unset XAPI_TOKEN_FILE"]
    assert "unset" not in xapi("token", "show", "--format", "env", env={"XAPI_TOKEN": "a", "XAPI_TOKEN_FILE": ""}).out

    script = """
        eval "$(xapi token show --format env)"
        rm "$FILE"
        xapi request /x-api/me
        xapi token show
    """
    shell = xapi.start(script, argv=("sh", "-c"), env={**env, "FILE": str(token_file)})
    out, err = shell.communicate()
    assert (shell.returncode, err) == (0, b"")
    assert out.endswith(b"\nnew-token\n")


def test_a_replaced_token_is_used_after_a_401(xapi: Xapi, service: RotatingSandbox, env: Env, token_file: Path) -> None:
    service.on_rejection = lambda: _replace(token_file, "new-token")

    outcome = xapi(*ME, env=env)
    assert (outcome.code, json.loads(outcome.out)["email"], outcome.err) == (0, MASTER.email, "")
    assert (service.requests, service.login_attempts) == (2, 0)


def test_a_replaced_token_that_is_rejected_too_is_final(
    xapi: Xapi, service: RotatingSandbox, env: Env, token_file: Path
) -> None:
    tokens = iter(["second", "third", "fourth"])
    service.on_rejection = lambda: _replace(token_file, next(tokens))

    outcome = xapi(*ME, env=env)
    assert (outcome.code, service.requests) == (10, 2)
    assert "XAPI_TOKEN_FILE was rejected: replace the token, or unset XAPI_TOKEN_FILE" in outcome.err


@pytest.mark.parametrize("change", ["unchanged", "deleted", "emptied"])
def test_without_a_new_token_a_401_is_final(
    xapi: Xapi, service: RotatingSandbox, env: Env, token_file: Path, change: str
) -> None:
    changes = {"unchanged": lambda: None, "deleted": token_file.unlink, "emptied": lambda: token_file.write_text("")}
    service.on_rejection = changes[change]

    outcome = xapi(*ME, env=env)
    assert (outcome.code, service.requests, service.login_attempts) == (10, 1, 0)
    assert "XAPI_TOKEN_FILE" in outcome.err


def test_all_lines_of_a_batch_use_the_replaced_token(
    xapi: Xapi, service: RotatingSandbox, env: Env, token_file: Path
) -> None:
    service.on_rejection = lambda: _replace(token_file, "new-token")

    outcome = xapi("batch", env=env, input='{"path": "/x-api/me"}\n' * 60)
    assert outcome.code == 0
    assert {json.loads(line)["status"] for line in outcome.out.splitlines()} == {200}
    assert service.login_attempts == 0


@pytest.mark.parametrize(
    ("content", "problem", "command"),
    combined(
        [
            (None, "cannot be read: No such file or directory"),
            (b"", "is empty"),
            (b" \n", "is empty"),
            (TOO_LARGE, "is larger than 64 KiB"),
            (b"Bearer CANARY", "contains more than a token: there is whitespace in the middle"),
            (b"two\nlines", "contains more than a token: there is whitespace in the middle"),
            (b"CANARY-\xff", "contains characters that are not allowed in a token"),
            (b"CANARY\0", "contains characters that are not allowed in a token"),
            ("directory", "is not a regular file"),
            ("fifo", "is not a regular file"),
        ],
        [(ME,), (("token", "show"),), (("batch",),), (("exec", "--", "true"),)],
    ),
)
def test_an_unusable_file_exits_with_2_and_nothing_is_sent(
    xapi: Xapi,
    service: RotatingSandbox,
    env: Env,
    token_file: Path,
    command: tuple[str, ...],
    content: bytes | str | None,
    problem: str,
) -> None:
    token_file.unlink()
    if isinstance(content, bytes):
        token_file.write_bytes(content)
    elif content is not None:
        {"directory": os.mkdir, "fifo": os.mkfifo}[content](token_file)

    outcome = xapi(*command, env=env, input='{"path": "/x-api/me"}\n')
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"xapi: error: XAPI_TOKEN_FILE: {token_file} {problem}; name a file that contains only the token\n"
    )
    assert service.requests == 0


def test_a_token_and_a_file_exclude_each_other(xapi: Xapi, env: Env) -> None:
    outcome = xapi(*ME, env={**env, "XAPI_TOKEN": "abc"})

    assert (outcome.code, outcome.err) == (
        2,
        "xapi: error: XAPI_TOKEN and XAPI_TOKEN_FILE are both set; unset one of them\n",
    )
    assert xapi("token", "show", env={**env, "XAPI_TOKEN": ""}).out == "old-token\n"
