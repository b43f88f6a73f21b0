"""Messages between a borrower and the relay: how a loan ends, and how long one side waits for the other."""

import socket
from collections.abc import Iterator

import pytest

from xapi_cli.http.relay.messages import LoanEnd, MessageSocket, ProtocolError, within


@pytest.fixture
def pair() -> Iterator[tuple[MessageSocket, MessageSocket]]:
    one, other = map(MessageSocket, socket.socketpair())
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("end", [LoanEnd(("GET", 200), received=9, sent=7), LoanEnd(has_surplus=True)])
def test_the_end_of_a_loan_is_read_as_it_was_sent(pair: tuple[MessageSocket, MessageSocket], end: LoanEnd) -> None:
    borrower, relay = pair
    borrower.send(end.message())

    assert LoanEnd.of(relay.wait()) == end


def test_a_borrower_that_leaves_ends_the_loan_without_a_message(pair: tuple[MessageSocket, MessageSocket]) -> None:
    borrower, relay = pair
    borrower.close()

    assert LoanEnd.of(relay.wait()) == LoanEnd(kind=None, has_surplus=False)


def test_a_response_without_method_and_status_cannot_be_kept() -> None:
    with pytest.raises(ProtocolError):
        LoanEnd.of({"type": "keep", "received": 1, "sent": 1})


def test_counts_that_are_missing_equal_no_count() -> None:
    end = LoanEnd.of({"type": "keep", "kind": ["GET", 200]})

    assert (end.received, end.sent) == (None, None)


def test_a_wait_for_a_message_is_limited(pair: tuple[MessageSocket, MessageSocket]) -> None:
    _, relay = pair

    with pytest.raises(TimeoutError):
        relay.wait(within(0.01))
