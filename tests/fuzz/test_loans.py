"""Whatever the relay or a borrower receives is a message or an error of the protocol, and leaves nothing open."""

import json
import os
import socket
import struct
import threading

from hypothesis import given

from tests.fuzz.mutations import mutated
from xapi_cli.errors import NetworkError
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.relay.loans import RelayLender
from xapi_cli.http.relay.messages import (
    Loan,
    LoanRequest,
    Message,
    MessageSocket,
    ProtocolError,
    end_error,
    end_message,
)
from xapi_cli.http.timeouts import Timeouts, Wait

ROUTE = Route("https", "api.test", 443, Proxy("http", "proxy.test", 3128, b"Basic \xff"))
REQUEST = LoanRequest(ROUTE, "digest", (("the CA bundle", "/etc/ca.pem"),))


def wire(message: Message) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack("!I", len(data)) + data


REQUESTS = [wire(REQUEST.message()), wire({"type": "status"}), wire({"type": "keep", "kind": ["GET", 200]})]
REPLIES = [
    wire({"type": "phase", "phase": "TCP"}),
    wire(Loan("TLSv1.3", ("GET", 200), True, "127.0.0.1", "").message()),
    wire({"type": "phase", "phase": "TCP"}) + wire(Loan(None, None, False, "::1", "* connected").message()),
    wire({"type": "failed", "message": "no connection", "hint": None}),
    wire({"type": "miss"}),
    wire(end_message(None)),
    wire(end_message(ConnectionResetError(104, "reset"))),
]


def test_a_request_for_a_loan_is_the_same_after_its_transfer() -> None:
    assert LoanRequest.of(json.loads(json.dumps(REQUEST.message()))) == REQUEST


@given(mutated(REQUESTS))
def test_any_request_is_valid_or_an_error_of_the_protocol(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    control = MessageSocket(ours)
    with theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            while (message := control.receive()) is not None:
                LoanRequest.of(message)
                end_error(message)
        except ProtocolError:
            pass
        finally:
            control.close()


@given(mutated(REPLIES))
def test_any_reply_of_a_relay_is_a_connection_or_none_or_a_network_error(data: bytes) -> None:
    def reply() -> None:
        sent, kept = socket.socketpair()
        with theirs, sent, kept:
            socket.send_fds(theirs, [data], [sent.fileno()])
            theirs.shutdown(socket.SHUT_WR)

    before = len(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=reply)
    thread.start()
    lender = RelayLender(lambda: ours, ())
    try:
        connection = lender.borrow(
            ROUTE, "", Wait(Timeouts(), 5, lambda: "no connection"), lambda line: None, new=False
        )
    except NetworkError:
        connection = None
    thread.join()
    assert connection is None or isinstance(connection, Connection)
    if connection is not None:
        connection.close()
    ours.close()
    assert len(os.listdir("/proc/self/fd")) == before
