"""Runs a credential helper, `docker-credential-NAME get`, `store` or `erase`, and parses what it prints.

The protocol: https://github.com/docker/docker-credential-helpers. Secrets are in stdin and stdout only. What a helper
prints is never part of a message, because it may contain secrets; known failures are described in xapi's own words.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from xapi_cli.errors import StoreError
from xapi_cli.store.protocol import NoBackend
from xapi_cli.store.watchdog import WatchdogTimeout
from xapi_cli.system import programs
from xapi_cli.system.render import printable

_MAX_SIZE = 1024 * 1024  # bytes; a record has at most a quarter of this
_NOT_FOUND = "credentials not found in native keychain"
REMEDY = "use another --storage"
_REASONS = (  # a part of what a helper prints when it fails, in lowercase, and what it means
    ("not initialized", "the password store is not initialized", "run `pass init GPG-ID`"),
    ("password store is empty", "the password store is not initialized", "run `pass init GPG-ID`"),
    ("decryption failed", "its data cannot be decrypted", "unlock the key"),
    ("no secret key", "its data cannot be decrypted", "import the secret key"),
    ("interaction is not allowed", "the keychain is locked", "unlock it"),
    ("is locked", "it is locked", "unlock it"),
    ("cannot autolaunch", "its secret service is not running", "start it"),
)


class HelperFailed(StoreError):
    """The helper exited with a failure of unknown cause."""


class Program:
    """The helper that the setting `credential_helper` names: by its NAME, or by the absolute path of the program.

    Each call takes at most the time that *left* returns. With *is_user_present*, the helper may prompt on the terminal.
    *run* replaces `programs.run`. The helper is killed at the end of the pipe `lifeline`: it does not outlive this
    process, so that the next one can use the helper, and the helper stores nothing afterwards.
    """

    def __init__(
        self,
        helper: str,
        environ: Mapping[str, str],
        *,
        is_user_present: bool,
        run: programs.RunProgram | None = None,
    ) -> None:
        self._path = helper if os.path.isabs(helper) else f"docker-credential-{helper}"
        self.name = printable(os.path.basename(self._path))
        self.lifeline: int | None = None
        self._environ, self._in_background = environ, not is_user_present
        self._run = run or programs.run

    def get(self, server: str, left: Callable[[], float]) -> str | None:
        """Return the secret that is stored for *server*, or None if there is none."""
        output = self._call("get", server, left)
        return None if output is None else self._secret(output) or None  # some helpers find an empty one

    def store(self, server: str, username: str, secret: str, left: Callable[[], float]) -> None:
        """Store *secret* for *server*."""
        self._call("store", json.dumps({"ServerURL": server, "Username": username, "Secret": secret}), left)

    def erase(self, server: str, left: Callable[[], float]) -> None:
        """Delete what is stored for *server*."""
        self._call("erase", server, left)

    def _call(self, action: str, text: str, left: Callable[[], float]) -> bytes | None:
        """Return what the helper prints for *action* with *text* in its stdin, or None if it found no credentials.

        Raises WatchdogTimeout, and StoreError if it fails.
        """
        try:
            helper = programs.Invocation(
                (self._path, action),
                self._environ,
                _MAX_SIZE,
                data=text.encode("ascii"),
                in_background=self._in_background,
                lifeline=self.lifeline,
            )
            output, code = self._run(helper, left)
        except subprocess.TimeoutExpired:
            raise WatchdogTimeout from None
        except FileNotFoundError:
            problem = f"the credential helper {self.name} was not found"
            raise NoBackend(problem, hint="install it or correct credential_helper", alternative=REMEDY) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "invalid path"
            problem = f"the credential helper {self.name} cannot be run: {reason}"
            raise StoreError(problem, hint="correct credential_helper", alternative=REMEDY) from None
        if len(output) > _MAX_SIZE:
            problem = f"`{self.name} {action}` printed more than 1 MiB"
            raise StoreError(problem, hint="check the helper", alternative=REMEDY)
        if code == 0:
            return output
        if output.strip() == _NOT_FOUND.encode():
            return None
        raise self._failure(action, output, code)

    def _failure(self, action: str, output: bytes, code: int) -> StoreError:
        printed = output.decode("utf-8", "replace").lower()
        for part, meaning, remedy in _REASONS:
            if part in printed:
                return StoreError(f"`{self.name} {action}` failed: {meaning}", hint=remedy, alternative=REMEDY)
        how = programs.describe_failure(code)
        problem, hint = f"`{self.name} {action}` {how}", "run the helper yourself to see why"
        return HelperFailed(problem, hint=hint, alternative=REMEDY)

    def _secret(self, output: bytes) -> str:
        try:
            members: Any = json.loads(output)
            secret = members["Secret"]
            if isinstance(secret, str):
                return secret
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # raised below, so that no exception with the output is attached
        problem = f"`{self.name} get` did not print valid credentials"
        raise StoreError(problem, hint="check the helper", alternative=REMEDY)
