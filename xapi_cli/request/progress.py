"""The progress bar of a download, on stderr, for interactive use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show the number of bytes received, the rate and the remaining time; yield the function that advances the bar.

    *total* is the expected number of bytes, or None if it is unknown.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        def advance(count: int) -> None:
            progress.advance(task, count)

        yield advance
