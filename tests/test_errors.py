"""Each exception has its documented exit code."""

import inspect
import signal
from typing import Any

import pytest

from xapi_cli import errors
from xapi_cli.errors import XapiError

CODES = {
    "XapiError": 1,
    "ChecksFailed": 1,
    "FilterError": 6,
    "UsageError": 2,
    "InvalidLine": 2,
    "RedirectError": 3,
    "ClientStatusError": 4,
    "ServerStatusError": 5,
    "ExpectationFailed": 6,
    "AuthenticationError": 10,
    "LoginRefused": 10,
    "GrantRefused": 10,
    "LoginNeeded": 10,
    "TokenRejected": 10,
    "NetworkError": 11,
    "BodyTooLarge": 11,
    "InvalidTokenResponse": 11,
    "TimeoutExpired": 12,
    "StoreError": 13,
    "OutputError": 14,
    "CommandError": 126,
    "Interrupted": 130,
    "ClosedPipe": 141,
}
CLASSES: dict[str, Any] = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, XapiError)
}


def test_every_failure_is_in_the_table_and_in_the_tree_of_the_docstring() -> None:
    assert sorted(CLASSES) == sorted(CODES)
    tree = dict(line.split()[-20:][:2] for line in _tree())
    assert tree == {name: str(code) for name, code in CODES.items()}


def _tree() -> list[str]:
    """Return the lines of the tree, without the box-drawing characters."""
    lines = (errors.__doc__ or "").split("\n\n")[1].splitlines()
    return [line.translate(str.maketrans("", "", "│├└─")).strip() for line in lines]


@pytest.mark.parametrize("name", [name for name in CODES if name != "Interrupted"])
def test_a_failure_has_an_exit_code_and_a_hint(name: str) -> None:
    error = CLASSES[name]("it happened", hint="do this")

    assert isinstance(error, XapiError)
    assert (error.exit_code, error.message, error.hint) == (CODES[name], "it happened", "do this")
    assert str(error) == "it happened; do this"
    assert str(CLASSES[name]("it happened")) == "it happened"


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str)
def test_the_exit_code_for_a_signal_is_128_plus_its_number(number: signal.Signals, code: int) -> None:
    assert errors.Interrupted(number).exit_code == code
    assert errors.Interrupted().exit_code == 130


def test_the_kind_of_a_failure_is_a_word_for_one_exit_code() -> None:
    kinds = {(each.kind, each.exit_code) for each in CLASSES.values() if each is not errors.Interrupted}

    assert len({word for word, _ in kinds}) == len(kinds)
    assert all(word.isalpha() for word, _ in kinds)


def test_each_failure_has_an_effect_on_a_batch_and_on_processes_that_wait_for_a_login() -> None:
    results = {name: errors.of_line(each("it happened")) for name, each in CLASSES.items() if name != "Interrupted"}

    assert {name: result.kind for name, result in results.items() if result is not None} == {
        "FilterError": "filter",
        "InvalidLine": "input",
        "RedirectError": "auth",  # of the login: a response to the call is a result
        "ClientStatusError": "auth",
        "ServerStatusError": "auth",
        "ExpectationFailed": "expectation",
        "AuthenticationError": "auth",
        "LoginRefused": "auth",
        "GrantRefused": "auth",
        "LoginNeeded": "auth",
        "TokenRejected": "auth",
        "NetworkError": "network",
        "BodyTooLarge": "size",
        "InvalidTokenResponse": "network",
        "TimeoutExpired": "timeout",
    }
    assert {name for name, each in CLASSES.items() if each.is_stored} == {
        "FilterError",
        "ExpectationFailed",
        "BodyTooLarge",
    }
    assert {name for name, each in CLASSES.items() if each.is_shared} == {
        "RedirectError",
        "ClientStatusError",
        "ServerStatusError",
        "NetworkError",
        "BodyTooLarge",
        "InvalidTokenResponse",
        "TimeoutExpired",
        "GrantRefused",
    }


@pytest.mark.parametrize(
    "status, name",
    [(200, None), (304, None), (302, "RedirectError"), (404, "ClientStatusError"), (503, "ServerStatusError")],
)
def test_a_status_has_one_failure(status: int, name: str | None) -> None:
    assert errors.of_status(status) == (CLASSES[name] if name else None)
