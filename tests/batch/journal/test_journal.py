"""The journal restores every result that it stores, whatever its exit code and its kind."""

import inspect
from pathlib import Path

import pytest

from xapi_cli import errors
from xapi_cli.batch.journal.journal import Journal
from xapi_cli.batch.output.results import InvalidLine, Result
from xapi_cli.batch.responses import BodyTooLarge
from xapi_cli.errors import XapiError

SEEN = bytes(16)


class UnmetExpectation(XapiError):
    """A failure that no batch has today."""

    exit_code = 6
    kind = "expectation"


OF_XAPI = [each for each in vars(errors).values() if inspect.isclass(each)]


@pytest.mark.parametrize(
    "failure", [*OF_XAPI, InvalidLine, BodyTooLarge, UnmetExpectation], ids=lambda failure: failure.__name__
)
def test_a_result_with_any_exit_code_and_kind_is_restored(tmp_path: Path, failure: type[XapiError]) -> None:
    path, stored = str(tmp_path / "journal"), Result(1, b"{}", failure.exit_code, failure.kind, SEEN)
    with Journal(path, "me") as journal:
        journal.store(stored)

    with Journal(path, "me") as again:
        restored = again.restore(1, SEEN)

    assert (restored, again.restored, again.damaged) == (stored, 1, 0)
