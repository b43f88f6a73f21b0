"""Each exception has its documented exit code."""

import inspect
import signal
from typing import Any

import pytest

from xapi_cli import errors
from xapi_cli.errors import XapiError

CLASSES: dict[str, Any] = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, XapiError)
}


def _made(kind: Any, **details: str) -> XapiError:
    """Return a failure of the class *kind*."""
    error: XapiError = kind() if kind is errors.Interrupted else kind("it happened", **details)
    return error


def test_the_tree_in_the_docstring_has_every_failure_and_its_exit_code() -> None:
    lines = (errors.__doc__ or "").split("\n\n")[1].translate(str.maketrans("", "", "│├└─")).splitlines()
    tree = dict(line.split()[:2] for line in lines)

    assert tree == {name: str(_made(kind).exit_code) for name, kind in CLASSES.items()}


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "Interrupted"])
def test_a_failure_has_a_message_and_a_hint(name: str) -> None:
    error = _made(CLASSES[name], hint="do this")

    assert (error.message, error.hint, str(error)) == ("it happened", "do this", "it happened; do this")
    assert str(_made(CLASSES[name])) == "it happened"


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
