"""The login gate of a batch, with decisions of the test in place of requests and logins."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from xapi_cli.auth.login_gate import LoginGate
from xapi_cli.batch.in_flight import InFlight
from xapi_cli.batch.input.entries import Entry
from xapi_cli.errors import LoginNeeded, XapiError
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.http.flow import Login
from xapi_cli.tokens import Token

OLD, NEW = Token("old"), Token("new")


class _Tokens:
    """A TokenSource: *renewed* is the result of a login."""

    def __init__(self) -> None:
        self.cached: Token | None = None
        self.renewed: Token | Exception | None = NEW
        self.failure: XapiError | None = None
        self.unproven: set[Token] = set()
        self.logins = 0
        self.may_log_in = threading.Event()

    def is_unproven(self, token: Token) -> bool:
        return token in self.unproven

    def current(self) -> Token | None:
        self.logins += 1
        assert self.may_log_in.wait(20)
        if isinstance(self.renewed, Exception):
            raise self.renewed
        self.cached = self.renewed
        return self.renewed

    def renew(self, rejected: Token) -> Token | None:
        return self.current()


class _World:
    def __init__(self, *, is_interactive: bool = True) -> None:
        self.tokens, self.loop = _Tokens(), EventLoop()
        self.resumed: list[tuple[int, Any]] = []
        self.phases: list[bool] = []
        self.in_use: set[Token] = set()
        self.gate: LoginGate[Any] = LoginGate(
            cast("Any", self.tokens),
            self.loop,
            resume=lambda request, result: self.resumed.append((request.number, result)),
            is_in_use=lambda token: token in self.in_use,
            on_login=self.phases.append,
            is_interactive=is_interactive,
        )

    def enter(self, number: int, rejected: Token | None = None) -> None:
        self.gate.enter(InFlight(Entry(number), cast("Any", None)), Login(rejected))


@pytest.fixture
def world() -> Iterator[_World]:
    world = _World()
    world.tokens.may_log_in.set()
    yield world
    world.loop.close()


def test_a_known_token_is_used_without_a_login(world: _World) -> None:
    world.tokens.cached = NEW
    world.enter(1)
    world.enter(2, OLD)

    assert (world.resumed, world.tokens.logins, world.phases) == ([(1, NEW), (2, NEW)], 0, [])


def test_requests_wait_for_one_login_in_a_thread_and_continue_in_their_order() -> None:
    world = _World(is_interactive=False)
    for number in (3, 1, 2):
        world.enter(number)
    assert (world.gate.is_closed, world.gate.is_prompting, world.resumed) == (True, False, [])
    world.tokens.may_log_in.set()
    while world.gate.is_logging_in:
        assert list(world.loop.ready(10)) == []
    world.loop.close()

    assert (world.resumed, world.tokens.logins) == ([(1, NEW), (2, NEW), (3, NEW)], 1)
    assert (world.phases, world.gate.is_closed) == ([True, False], False)


def test_each_request_gets_its_own_copy_of_the_error_of_a_login() -> None:
    world = _World(is_interactive=False)
    world.tokens.renewed = LoginNeeded("no password")
    world.enter(1)
    world.enter(2)
    world.tokens.may_log_in.set()
    while world.gate.is_logging_in:
        assert list(world.loop.ready(10)) == []
    world.loop.close()

    (_, first), (_, second) = world.resumed
    assert (first.message, second.message, world.tokens.logins) == ("no password", "no password", 1)
    assert first is not second


def test_after_a_failed_login_no_other_one_begins(world: _World) -> None:
    world.tokens.failure = LoginNeeded("refused")
    world.enter(1, OLD)

    assert ([(number, str(error)) for number, error in world.resumed], world.tokens.logins) == ([(1, "refused")], 0)


def test_a_fresh_token_that_is_rejected_waits_for_the_other_requests_with_it(world: _World) -> None:
    """They may show that it is valid, so that this 401 is not about the token."""
    world.tokens.cached, world.tokens.unproven, world.in_use = NEW, {NEW}, {NEW}
    world.enter(1, NEW)
    world.gate.decide()
    assert (world.resumed, world.gate.is_closed, world.tokens.logins) == ([], True, 0)

    world.in_use.clear()
    world.tokens.renewed = None  # as a TokenSource: a new token is not replaced
    world.gate.decide()
    assert (world.resumed, world.gate.is_closed) == ([(1, None)], False)


def test_a_cleared_gate_resumes_nothing(world: _World) -> None:
    world.tokens.cached, world.tokens.unproven, world.in_use = NEW, {NEW}, {NEW}
    world.enter(1, NEW)
    world.gate.clear()
    world.in_use.clear()
    world.gate.decide()

    assert (world.resumed, world.gate.is_closed) == ([], False)
