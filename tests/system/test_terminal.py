"""Messages on stderr, colors, and the line that shows the progress."""

import threading
from collections.abc import Callable

import pytest

from tests.support.program import Environ, Outcome, Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox
from xapi_cli.system.progress import Activity, Progress, Transfer, Waiting, line

ARGS = ("token", "status", "--base-url", "ftp://api.test")
TEXT = "--base-url: the base URL has the scheme 'ftp', not http or https; write it like https://api.example.com"


def test_an_error_is_one_plain_line_where_stderr_is_not_a_terminal(xapi: Xapi) -> None:
    assert xapi(*ARGS, env={"TERM": "xterm", "COLUMNS": "40"}) == Outcome(2, "", f"xapi: error: {TEXT}\n")


@pytest.mark.parametrize("columns, env", [(60, {}), (60, {"NO_COLOR": "1"}), (120, {"TERM": "dumb"})])
def test_an_error_on_a_terminal_is_wrapped_between_words(xapi: Xapi, columns: int, env: Environ) -> None:
    with xapi.on_terminal(*ARGS, env=env, columns=columns) as terminal:
        assert terminal.wait() == 2
    lines = terminal.text.splitlines()
    assert len(lines) == (1 if columns == 120 else 2)
    assert " ".join(each.strip() for each in lines) == f"xapi: error: {TEXT}"
    assert all(each.startswith("  ") and len(each) <= columns for each in lines[1:])
    assert (b"xapi: \x1b[1;31merror:\x1b[0m " in terminal.seen) is (b"\x1b" in terminal.seen) is (env == {})


def test_notes_warnings_and_commands_have_their_colors_on_a_terminal_only(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": "127.0.0.1:9", "XAPI_USERNAME": "me", "XAPI_TOKEN": "abc"}
    with xapi.on_terminal("logout", env=env, columns=200) as terminal:
        assert terminal.wait() == 0
    warning, note = terminal.seen.splitlines()
    assert warning.startswith(b"xapi: \x1b[1;33mwarning:\x1b[0m ")
    assert note == b"\x1b[2mxapi: nothing was stored for me at http://127.0.0.1:9\x1b[0m"
    assert "\x1b" not in xapi("logout", env=env).err
    with xapi.on_terminal("token", "status", env={**env, "XAPI_TOKEN": None}) as terminal:
        assert terminal.wait() == 10
    assert b"; run \x1b[36m`xapi login`\x1b[0m\r\n" in terminal.seen


def test_a_prompt_states_why_and_is_wrapped_between_words(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    sandbox.revoke_tokens()
    env = {**sandbox.settings, "XAPI_PASSWORD": None}
    with xapi.on_terminal("request", "/x-api/me", env=env, columns=60) as screen:
        screen.expect(f"{sandbox.base_url}: ")
        lines = screen.text.splitlines()
        assert [each for each in lines if len(each) > 60] == []
        assert " ".join(each.strip() for each in lines) == (
            f"The API rejected the stored token (401). Password for {MASTER.email} at {sandbox.base_url}:"
        )
        assert b"\x1b[1mThe API " in screen.seen
        screen.type(f"{MASTER.password}\n")
        assert screen.wait() == 0
    assert MASTER.password not in screen.text


class Screen:
    """Records what is written, and waits for it."""

    def __init__(self) -> None:
        self.seen = b""
        self._changed = threading.Condition()

    def write(self, data: bytes) -> None:
        with self._changed:
            self.seen += data
            self._changed.notify_all()

    def expect(self, is_met: Callable[[bytes], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: is_met(self.seen), 20), self.seen


@pytest.fixture
def screen() -> Screen:
    return Screen()


def _old(activity: Activity, done: int = 0) -> Activity:
    """Return *activity* as if it had begun ten seconds ago and had done *done* units."""
    activity.started -= 10
    activity.advance(done)
    return activity


@pytest.mark.parametrize(
    "activity, done, text",
    [
        (Transfer("received", 4096), 1024, "25% received 1.0 KiB of 4.0 KiB, 102 bytes/s"),
        (Transfer("received", 4096, 2048), 1024, "0:10 left"),
        (Transfer("sent", None), 1024, "sent 1.0 KiB, 102 bytes/s"),
        (Transfer("received", 100), 1024, "100% received 1.0 KiB of 100 bytes, 102 bytes/s"),  # more than was declared
        (Waiting("a\x1bb"), 0, "waiting for a\\x1bb, 10 s"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Activity) else None,
)
def test_an_activity_shows_its_amount_rate_and_remaining_time(activity: Activity, done: int, text: str) -> None:
    _old(activity, done)
    now = activity.started + 10
    assert text in line(activity, now, 120)
    for columns in (1, 20, 40, 60):
        assert len(line(activity, now, columns)) <= columns


def test_the_line_shows_the_innermost_activity_that_takes_long_and_gives_way_to_other_output(screen: Screen) -> None:
    progress = Progress(screen.write, lambda: 80)
    with progress.during(Waiting("short")):
        pass
    assert screen.seen == b""
    with progress.during(_old(Waiting("host"))):
        screen.expect(lambda seen: b"waiting for host" in seen)
        with progress.during(_old(Transfer("sent", 9), 1)):
            screen.expect(lambda seen: b"sent 1 byte of 9 bytes" in seen)
            with progress.interrupted():
                screen.write(b"message\n")
            screen.expect(lambda seen: b"sent" in seen.partition(b"message\n")[2])
    assert b"\r\x1b[Kmessage\n" in screen.seen
    assert screen.seen.endswith(b"\r\x1b[K")


def test_nothing_is_shown_while_that_is_not_possible(screen: Screen) -> None:
    is_possible, asked = threading.Event(), threading.Semaphore(0)

    def may_show() -> bool:
        asked.release()
        return is_possible.is_set()

    with Progress(screen.write, lambda: 80, may_show).during(_old(Waiting("host"))):
        assert all(asked.acquire(timeout=20) for _ in range(3))
        assert screen.seen == b""
        is_possible.set()
        screen.expect(lambda seen: b"waiting" in seen)
