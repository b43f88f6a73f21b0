"""Backends of keyring that behave like those of other platforms, or fail; PYTHON_KEYRING_BACKEND selects one.

They store items in the JSON file that FAKE_KEYRING names: a list of [service, username, text].
"""

import builtins
import getpass
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, ClassVar

import keyring.errors
from keyring.backend import KeyringBackend


class Plain(KeyringBackend):
    """Store any text; record the calls of this process."""

    priority: ClassVar[float] = 1
    calls: ClassVar[list[str]] = []

    def get_password(self, service: str, username: str) -> str | None:
        self.calls.append("get")
        return next((text for s, u, text in self.items() if (s, u) == (service, username)), None)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.calls.append("set")
        self.put(service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        self.calls.append("delete")
        items = self.items()
        if not (own := [item for item in items if item[:2] == [service, username]]):
            raise keyring.errors.PasswordDeleteError("No such password!")
        items.remove(own[0])
        self.keep(items)

    def put(self, service: str, username: str, text: str) -> None:
        items = [item for item in self.items() if item[:2] != [service, username]]
        self.keep([*items, [service, username, text]])

    def items(self) -> list[list[str]]:
        assert "XAPI_PASSWORD" not in os.environ  # a program that a backend starts would inherit it
        path = Path(os.environ["FAKE_KEYRING"])
        return list(json.loads(path.read_text())) if path.exists() else []

    def keep(self, items: list[list[str]]) -> None:
        path = Path(os.environ["FAKE_KEYRING"])
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(items))
        new.chmod(0o600)  # a keyring that the umask makes unreadable would be of no use
        new.replace(path)


class error(Exception):  # noqa: N801  # pywintypes.error is called so
    """The exception that pywin32 raises."""


class Windows(Plain):
    """Reject more than 2,560 bytes of UTF-16; move the item of a service that is written again (see keyring).

    The case of the names of items is ignored, but not that of usernames.
    """

    priority: ClassVar[float] = 1

    def get_password(self, service: str, username: str) -> str | None:
        self.calls.append("get")
        found = self._read(service)
        if found is None or found[1] != username:
            found = self._read(f"{username}@{service}")
        return None if found is None else found[2]

    def set_password(self, service: str, username: str, password: str) -> None:
        self.calls.append("set")
        if (existing := self._read(service)) is not None:
            self._write(f"{existing[1]}@{service}", existing[1], existing[2])
        self._write(service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        self.calls.append("delete")
        targets = [service.lower(), f"{username}@{service}".lower()]
        items = self.items()
        remaining = [item for item in items if item[0].lower() not in targets or item[1] != username]
        if len(remaining) == len(items):
            raise keyring.errors.PasswordDeleteError(service)
        self.keep(remaining)

    def _read(self, target: str) -> list[str] | None:
        return next((item for item in self.items() if item[0].lower() == target.lower()), None)

    def _write(self, target: str, username: str, text: str) -> None:
        if len(text.encode("utf-16-le")) > 2560:
            raise error(1783, "CredWrite", f"The stub received bad data: {text}")
        others = (item for item in self.items() if item[0].lower() != target.lower())
        self.keep([*others, [target, username, text]])


class MacOS(Plain):
    """Replace an item by deleting and adding it, with a pause in between."""

    priority: ClassVar[float] = 1

    def put(self, service: str, username: str, text: str) -> None:
        items = self.items()
        self.keep([item for item in items if item[:2] != [service, username]])
        time.sleep(0.002)
        if self.get_password(service, username) is not None:
            raise RuntimeError("-25299: the specified item already exists in the keychain")
        super().put(service, username, text)


class Truncating(Plain):
    """Truncate texts of more than 1,500 characters, without an error."""

    def put(self, service: str, username: str, text: str) -> None:
        super().put(service, username, text[:1500])


class NotPersistent(Plain):
    """Accept every write and store nothing."""

    def put(self, service: str, username: str, text: str) -> None:
        pass


class Unresponsive(Plain):
    """Never respond, but poll for a response, which takes little of the processor."""

    def get_password(self, service: str, username: str) -> str | None:
        while True:
            time.sleep(0.02)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.get_password(service, username)

    def delete_password(self, service: str, username: str) -> None:
        self.get_password(service, username)


class Slow(Plain):
    """Wait FAKE_KEYRING_SECONDS before every response, as a busy service does."""

    def get_password(self, service: str, username: str) -> str | None:
        time.sleep(float(os.environ["FAKE_KEYRING_SECONDS"]))
        return super().get_password(service, username)


class Working(Plain):
    """Use the processor for FAKE_KEYRING_SECONDS before every response, as on a busy machine."""

    def get_password(self, service: str, username: str) -> str | None:
        end = time.monotonic() + float(os.environ["FAKE_KEYRING_SECONDS"])
        while time.monotonic() < end:
            pass
        return super().get_password(service, username)


class Prompting(Plain):
    """Wait until a process writes to the FIFO that FAKE_KEYRING_FIFO names, as for a user who has to unlock it."""

    def get_password(self, service: str, username: str) -> str | None:
        Path(os.environ["FAKE_KEYRING_FIFO"]).read_bytes()
        return super().get_password(service, username)


class Undeletable(Plain):
    """Store items that cannot be deleted."""

    def delete_password(self, service: str, username: str) -> None:
        raise keyring.errors.PasswordDeleteError("CANARY")


class Keeping(Plain):
    """Accept deletions, but keep the items if FAKE_KEYRING_KEEPS is set."""

    def delete_password(self, service: str, username: str) -> None:
        if "FAKE_KEYRING_KEEPS" not in os.environ:
            super().delete_password(service, username)


class Raising(Plain):
    """Raise the exception that FAKE_KEYRING_RAISES names, if it is set, with a secret in its text."""

    def get_password(self, service: str, username: str) -> str | None:
        self._fail()
        return super().get_password(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self._fail()
        super().set_password(service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        self._fail()
        super().delete_password(service, username)

    @classmethod
    def _fail(cls) -> None:
        if "FAKE_KEYRING_RAISES" in os.environ:
            raise cls._error()

    @staticmethod
    def _error() -> BaseException:
        name = os.environ["FAKE_KEYRING_RAISES"]
        if name == "UnicodeEncodeError":
            return UnicodeEncodeError("utf-8", "CANARY", 0, 1, "CANARY")
        known: Any = getattr(builtins, name, None) or getattr(keyring.errors, name, None)
        kind = known or type(name, (BaseException,), {})
        made: BaseException = kind("CANARY")
        return made


class Flaky(Plain):
    """Fail with a transient error at the first two calls."""

    failures: ClassVar[int] = 0

    def get_password(self, service: str, username: str) -> str | None:
        Flaky.failures += 1
        if Flaky.failures < 3:
            raise keyring.errors.InitError("CANARY")
        return super().get_password(service, username)


class Noisy(Plain):
    """Print what it gets, as debugging aids do, and read stdin."""

    def set_password(self, service: str, username: str, password: str) -> None:
        self.say(password)
        super().set_password(service, username, password)

    def get_password(self, service: str, username: str) -> str | None:
        text = super().get_password(service, username)
        self.say(str(text))
        return text

    def say(self, text: str) -> None:
        print("NOISE", text)  # noqa: T201 - what it is for
        warnings.warn(f"NOISE {text}", stacklevel=1)
        logging.getLogger("noisy").error("NOISE %s", text)
        sys.stdin.read()


class Asking(Plain):
    """Ask for input, as a backend with its own password does."""

    def get_password(self, service: str, username: str) -> str | None:
        getpass.getpass("Password of the keyring: ")
        return None
