"""The line that shows the progress: what it says, how it is drawn, and that it never mixes with other output."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from xapi_cli.system.progress import Activity, Lines, Pages, Progress, Transfer, Waiting
from xapi_cli.system.render import size_of_total


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


def _progress(screen: Screen, columns: int = 80, *, colors: bool = False) -> Progress:
    return Progress(screen.write, lambda: columns, colors=colors)


def _old(activity: Activity) -> Activity:
    """Return *activity* as if it had begun ten seconds ago."""
    activity.started -= 10
    return activity


def _transfer(done: int, total: int | None) -> Activity:
    transfer = _old(Transfer("received", total))
    transfer.advance(done)
    return transfer


@pytest.mark.parametrize(
    "activity, text",
    [
        (Transfer("received", 4096), "received 1.0 of 4.0 KiB, 512 bytes/s, 0:06 left"),
        (Transfer("sent", None), "sent 1.0 KiB, 512 bytes/s"),
        (Transfer("received", 100), "received 1.0 KiB of 100 bytes, 512 bytes/s"),  # more than was declared
    ],
)
def test_a_transfer_shows_its_size_rate_and_remaining_time(activity: Activity, text: str) -> None:
    activity.advance(1024)

    assert activity.text(activity.started + 2) == text


def test_a_resumed_transfer_starts_with_what_was_there() -> None:
    transfer = Transfer("received", 4096, 2048)
    transfer.advance(1024)

    assert transfer.text(transfer.started + 2) == "received 3.0 of 4.0 KiB, 512 bytes/s, 0:02 left"


def test_lines_show_how_many_failed() -> None:
    lines = Lines(1000)
    lines.done, lines.lines, lines.failed = 500, 12_000, 3

    assert lines.text(lines.started + 2) == "12,000 lines, 6,000/s, 3 failed, 0:02 left"


def test_a_host_name_cannot_contain_control_characters() -> None:
    assert Waiting("a\x1bb").text(time.monotonic()) == "waiting for a\\x1bb, 0 s"


@pytest.mark.parametrize("columns", [1, 20, 40, 60, 80, 120])
@pytest.mark.parametrize("done", [0, 1, 500_000, 1_000_000, 2_000_000])
def test_the_line_is_shorter_than_the_terminal(screen: Screen, columns: int, done: int) -> None:
    with _progress(screen, columns).during(_transfer(done, 1_000_000)):
        screen.expect(lambda seen: seen.endswith(b"\x1b[K"))

    line = screen.seen.decode().split("\x1b[K")[0].lstrip("\r")
    assert len(line) < columns


@pytest.mark.parametrize("total, has_bar", [(1_000_000, True), (123 * 2**20, True), (2**80, False)])
def test_at_60_columns_there_is_a_bar_unless_the_numbers_take_its_place(
    screen: Screen, total: int, has_bar: bool
) -> None:
    with _progress(screen, 60).during(_transfer(total // 2, total)):
        screen.expect(lambda seen: seen.endswith(b"\x1b[K"))

    line = screen.seen.decode().split("\x1b[K")[0].lstrip("\r")
    assert line.startswith("━" if has_bar else "50% ")
    assert f" {size_of_total(total // 2, total)}, " in line


def test_the_bar_uses_the_16_colors_of_the_terminal(screen: Screen) -> None:
    with _progress(screen, 100, colors=True).during(_transfer(1, 2)):
        screen.expect(lambda seen: b"\x1b[K" in seen)

    assert b"\x1b[36m" in screen.seen
    assert b"38;" not in screen.seen


def test_a_short_activity_shows_nothing(screen: Screen) -> None:
    with _progress(screen).during(Waiting("host")):
        pass

    assert screen.seen == b""


def test_the_line_is_gone_at_the_end(screen: Screen) -> None:
    with _progress(screen).during(_transfer(1, 2)):
        screen.expect(lambda seen: b"received" in seen)

    assert screen.seen.endswith(b"\r\x1b[K")


def test_the_innermost_activity_is_shown(screen: Screen) -> None:
    progress = _progress(screen)
    with progress.during(_old(Waiting("host"))):
        screen.expect(lambda seen: b"waiting for host" in seen)
        with progress.during(_transfer(1, 2)):
            screen.expect(lambda seen: b"received" in seen)


def test_the_outer_activity_is_shown_until_the_inner_one_takes_long(screen: Screen) -> None:
    pages = Pages()
    pages.done, pages.items = 2, 1
    progress = _progress(screen)
    with progress.during(_old(pages)), progress.during(Waiting("host")):
        screen.expect(lambda seen: b"2 pages, 1 item, " in seen)
        screen.expect(lambda seen: b"waiting for host" in seen)


def test_the_line_of_an_activity_stays_when_one_within_it_ends(screen: Screen) -> None:
    progress = _progress(screen)
    with progress.during(_old(Pages())):
        with progress.during(Waiting("host")):
            screen.expect(lambda seen: b"0 pages" in seen)
        assert not screen.seen.endswith(b"\r\x1b[K")
    assert screen.seen.endswith(b"\r\x1b[K")


def test_nothing_is_shown_while_that_is_not_possible(screen: Screen) -> None:
    is_possible = threading.Event()
    asked = threading.Semaphore(0)

    def may_show() -> bool:
        asked.release()
        return is_possible.is_set()

    progress = Progress(screen.write, lambda: 80, colors=False, may_show=may_show)
    with progress.during(_transfer(1, 2)):
        assert all(asked.acquire(timeout=20) for _ in range(3))
        assert screen.seen == b""
        is_possible.set()
        screen.expect(lambda seen: b"received" in seen)


def test_the_wait_begins_when_the_upload_has_ended(screen: Screen) -> None:
    progress, wait = _progress(screen), _old(Waiting("host"))
    before = wait.started
    with progress.during(wait):
        with progress.during(_transfer(1, 2)):
            pass
        assert wait.started > before + 9


def test_an_activity_that_was_not_closed_ends_with_the_one_around_it(screen: Screen) -> None:
    progress = _progress(screen)
    with progress.during(_old(Waiting("host"))):
        left_open = progress.during(_transfer(1, 2))
        left_open.__enter__()
        screen.expect(lambda seen: b"received" in seen)
    count = len(screen.seen)
    with progress.during(_old(Waiting("next"))):
        screen.expect(lambda seen: b"next" in seen)

    assert b"received" not in screen.seen[count:]
    with suppress(RuntimeError):
        left_open.__exit__(None, None, None)


def test_other_output_replaces_the_line(screen: Screen) -> None:
    progress = _progress(screen)
    with progress.during(_transfer(1, 2)):
        screen.expect(lambda seen: b"received" in seen)
        with progress.interrupted():
            screen.write(b"message\n")
        screen.expect(lambda seen: b"received" in seen.partition(b"message\n")[2])

    assert b"\r\x1b[Kmessage\n" in screen.seen


def test_a_pause_erases_the_line(screen: Screen) -> None:
    progress = _progress(screen)
    with progress.during(_transfer(1, 2)):
        screen.expect(lambda seen: b"received" in seen)
        progress.pause()
        assert screen.seen.endswith(b"\r\x1b[K")
        count = len(screen.seen)
        progress.resume()
        screen.expect(lambda seen: b"received" in seen[count:])


def test_a_failure_to_draw_the_line_does_not_disturb_the_command(screen: Screen) -> None:
    failed = threading.Event()

    class Broken(Activity):
        def text(self, now: float) -> str:
            failed.set()
            raise MemoryError

    with _progress(screen).during(_old(Broken())):
        assert failed.wait(20)

    assert screen.seen == b""
