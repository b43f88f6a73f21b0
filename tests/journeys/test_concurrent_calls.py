"""Many calls with a real keyring, while the token is revoked."""

import subprocess
import time

import pytest

from tests.support.keyring_session import KeyringSession
from tests.support.program import PROGRAM, Xapi
from tests.support.stores import Env, lines
from xapi_cli.sandbox import Sandbox

pytestmark = pytest.mark.slow  # many processes


def test_32_concurrent_calls_neither_fail_nor_crash_the_keyring(
    xapi: Xapi, sandbox: Sandbox, gnome_keyring: KeyringSession
) -> None:
    calls = 64
    env: Env = {**gnome_keyring.environ, **sandbox.settings, "XAPI_STORAGE": "keyring"}
    assert xapi("login", "--remember", env=env).code == 0
    pid = gnome_keyring.pid
    # each call reports failure and completion; halfway, the token is revoked once, as a second 401 would be final
    call = '"$0" request /x-api/me >/dev/null 2>>errors || echo "$?" >>failed; echo >>done'
    xargs = ("xargs", "-P", "32", "-I", "{}", "sh", "-c", call, str(PROGRAM))
    process = xapi.start(stdin=subprocess.PIPE, env={**env, "XAPI_PASSWORD": None}, argv=xargs)
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % number for number in range(calls)))
    process.stdin.close()
    while process.poll() is None and lines(xapi, "done") < calls // 2:
        time.sleep(0.1)
    sandbox.revoke_tokens()
    process.wait()
    errors = (xapi.home / "errors").read_text()

    assert (process.returncode, lines(xapi, "done")) == (0, calls)
    assert not (xapi.home / "failed").exists(), errors
    assert (gnome_keyring.lives, gnome_keyring.pid) == (True, pid)
    assert gnome_keyring.count("xapi") == 1
    assert sandbox.logins == sandbox.login_attempts == 2
