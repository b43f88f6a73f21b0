"""A fake of the macOS keychain: what keyring's binding of Apple's Security framework provides, with items in a file.

The file FAKE_KEYCHAIN is an object: `items`, whether the keychain is `locked`, the `answer` of the user to a question
(allow, deny or none), and the number of questions `asked`. Each item lists the programs that may read it without a
question; FAKE_KEYCHAIN_PROGRAM is the program that runs. As the real library, it deletes and adds an item to change it.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DENIED, _NOT_FOUND, _LOCKED = -128, -25300, -25308


class Error(Exception):
    """The framework returned a status other than zero."""


class NotFound(Error):
    """There is no such item."""


class KeychainDenied(Error):
    """The user denied access."""


class SecAuthFailure(Error):
    """The program is not signed."""


def find_generic_password(_keychain: object, service: str, username: str, not_found_ok: bool = False) -> str | None:
    """Return the password; ask the user unless the program that runs is listed."""
    with _opened() as keychain:
        item = keychain["items"].get(f"{service}\n{username}")
        if item is None:
            if not_found_ok:
                return None
            raise NotFound(_NOT_FOUND, "Item not found")
        if _program() in item["programs"]:
            return str(item["password"])
        keychain["asked"] += 1
        answer = keychain["answer"]
    if answer == "deny":
        raise KeychainDenied(_DENIED, "Keychain Access Denied")
    if answer == "none":
        time.sleep(3600)
    return str(item["password"])


def set_generic_password(keychain: object, service: str, username: str, password: str) -> None:
    """Store the password in a new item, which lists the program that runs only."""
    try:
        delete_generic_password(keychain, service, username)
    except NotFound:
        pass
    time.sleep(0.01)  # a reader between the two calls would find no item
    with _opened() as opened:
        opened["items"][f"{service}\n{username}"] = {"password": password, "programs": [_program()]}


def delete_generic_password(_keychain: object, service: str, username: str) -> None:
    """Delete the item."""
    with _opened() as keychain:
        if keychain["items"].pop(f"{service}\n{username}", None) is None:
            raise NotFound(_NOT_FOUND, "Item not found")


def _program() -> str:
    return os.environ.get("FAKE_KEYCHAIN_PROGRAM", "python")


@contextmanager
def _opened() -> Iterator[dict[str, Any]]:
    with open(os.environ["FAKE_KEYCHAIN"], "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        keychain = json.load(file)
        if keychain["locked"]:
            raise Error(_LOCKED, "Unknown Error")
        yield keychain
        file.seek(0)
        file.truncate()
        json.dump(keychain, file)
