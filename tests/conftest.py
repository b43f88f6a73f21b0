"""Fixtures for all tests."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import xapi_cli
from tests.support.credential_helpers import _shared_password_store, fake_helper, shared_password_store  # noqa: F401 - fixtures
from tests.support.forks import Forks
from tests.support.keyring_session import _sessions, gnome_keyring, shared_gnome_keyring  # noqa: F401 - fixtures
from tests.support.program import PROGRAM, PYTHON, Xapi, clean_environ
from tests.support.redis_server import _shared_server, redis_server, shared_redis  # noqa: F401 - fixtures
from xapi_cli.features.sandbox import Sandbox

# Tests keep their files in memory: on a virtual disk, a fifth of their time passes while xapi flushes what it stores.
_MEMORY = Path("/dev/shm")
_NEEDED = 4 * 2**30  # free bytes

# Every run uses the same examples, even if a busy machine generates them slowly.
IGNORED = [HealthCheck.too_slow]
settings.register_profile(
    "xapi", max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=IGNORED
)
settings.load_profile("xapi")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if a test was skipped or expected to fail")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("no_skips") and reporter and {"skipped", "xfailed"} & reporter.stats.keys():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    _restore_signals()
    gc.disable()  # until the tests are collected
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    for name in os.environ.keys() - {"XAPI_TESTS_PROGRAM"}:  # the workers of pytest-xdist need it too
        if name.startswith("XAPI_") or name.lower().endswith("_proxy") or name in {"SSL_CERT_FILE", "SSL_CERT_DIR"}:
            del os.environ[name]  # settings of the developer must not affect the tests


def pytest_collection_finish() -> None:
    """Spare what has been collected, which lives until the end, from the garbage collector."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Collect garbage between tests only.

    A parser that is at the limit of recursion, as the tests with deeply nested data expect, may start a garbage
    collection. Finalizers of earlier tests would then fail there, with a RecursionError.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests more time, and rerun a test once if gnome-keyring was locked, as after its crash.

    See https://gitlab.gnome.org/GNOME/gnome-keyring/-/issues/190.
    """
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(300))
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        fixtures = getattr(item, "fixturenames", ())
        if any(name.endswith("gnome_keyring") for name in fixtures) or "keyring" in parameters.values():
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun="the keyring is locked"))


def _restore_signals() -> None:
    """Restore ignored signals, as in a background job of a shell or under nohup, because children inherit them."""
    if sys.platform == "win32":
        return
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_report_header() -> list[str]:
    return [f"package: {Path(xapi_cli.__file__).parent}", f"program: {PROGRAM}"]


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks | None]:
    """The server that forks runs of the program, None if the program is for another platform."""
    if "windows" in PROGRAM.parts:
        yield None
        return
    server = Forks(PYTHON, clean_environ(tmp_path_factory.mktemp("forks")))
    yield server
    server.stop()


@pytest.fixture
def xapi(tmp_path: Path, forks: Forks | None) -> Iterator[Xapi]:
    """The installed program, in its own HOME."""
    program = Xapi(tmp_path / "home", forks)
    yield program
    program.end()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """The documented API, listening; its counters record the requests that it received."""
    with Sandbox() as server:
        yield server
