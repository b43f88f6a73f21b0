"""A child of os.fork() shares no connection and no lock with its parent."""

import ssl
import threading
from pathlib import Path

import pytest
import trustme

from tests.features.batch.server import Api, ReceivedRequest, Reply
from tests.support.library_program import Program, with_token
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server
from tests.support.surplus import echo

HELPERS = """
import os, signal, sys, threading, traceback

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    signal.alarm(20)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

def codes(children):
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
"""


@pytest.fixture
def program(xapi: Xapi) -> Program:
    return Program(xapi)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_child_processes_receive_their_own_responses_and_do_not_use_the_connection_of_the_parent(
    program: Program,
    ca: trustme.CA,
    tmp_path: Path,
    is_secure: bool,
) -> None:
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    code = """
    def check(path):
        assert client.get(path).text == f"GET {path}"

    def work(number):
        for each in range(10):
            check(f"/{number}/{each}")
        client.close()

    client = xapi_cli.open_client()
    check("/before")
    children = [in_child(lambda: work(number)) for number in range(4)]
    for each in range(10):
        check(f"/parent/{each}")
    print(codes(children))
    check("/after")
    """
    with Server([echo(delay=None, surplus=b"")], tls=context if is_secure else None) as server:
        ran = program(code, {**with_token(server), "SSL_CERT_FILE": str(tmp_path / "ca.pem")}, prelude=HELPERS)
        received = server.received

    assert ran == Outcome(0, "[0, 0, 0, 0]\n")
    assert len(received) == 5
    assert [b"/before" in received[0], received[0].count(b"GET /parent"), b"/after" in received[0]] == [True, 10, True]


def test_a_child_reads_nothing_of_a_response_that_its_parent_is_reading(program: Program) -> None:
    code = """
    client = xapi_cli.open_client()
    with client.stream("GET", "/") as response:
        parts = response.iter_raw(1024)
        size = len(next(parts))
        def work():
            try:
                list(parts)
            except NetworkError:
                return
            raise AssertionError("it was read")
        print(codes([in_child(work)]))
        print(size + sum(map(len, parts)))
    """
    with Server([echo(size=4_000_000, surplus=b"")]) as server:
        ran = program(code, with_token(server), prelude=HELPERS)

    assert ran.code == 0, ran
    assert ran.out.startswith("[0]\n39999"), ran


class SlowLogin(Api):
    """Block each login until it is released, and signal its arrival."""

    def __init__(self) -> None:
        super().__init__(self._control, open_to_all=True)
        self.has_come, self.is_released = threading.Event(), threading.Event()

    def grant(self) -> str:
        self.has_come.set()
        assert self.is_released.wait(20)
        return super().grant()

    def _control(self, received: ReceivedRequest) -> Reply:
        if received.path == "/has-come":
            assert self.has_come.wait(20)
        if received.path == "/release":
            self.is_released.set()
        return Reply()


def test_a_child_shares_a_login_that_a_thread_of_its_parent_is_making(program: Program) -> None:
    code = """
    def work():
        httpx.get(os.environ["XAPI_BASE_URL"] + "/release")
        client.get("/child")

    client = xapi_cli.open_client()
    thread = threading.Thread(target=lambda: client.get("/parent"))
    thread.start()
    httpx.get(os.environ["XAPI_BASE_URL"] + "/has-come")
    print(codes([in_child(work)]))
    thread.join()
    """
    with SlowLogin() as api:
        ran = program(code, {**api.settings, "XAPI_STORAGE": "file"}, prelude=HELPERS)

        assert (ran.code, ran.out, api.logins) == (0, "[0]\n", 1), ran  # Python 3.12 warns of threads beside a fork
        assert {received.headers.get("authorization") for received in api.requests if received.path == "/child"} == {
            "Bearer token-1"
        }


def test_a_released_lock_is_free_although_a_child_process_is_running(program: Program) -> None:
    code = """
    from pathlib import Path
    from xapi_cli.system.lock import locked
    from xapi_cli.system.files import StateDirectory
    file = StateDirectory(Path("locks").absolute()).file("a")
    ours, theirs = os.pipe()
    with locked(file, timeout=1):
        child = in_child(lambda: (os.close(theirs), os.read(ours, 1)))
    with locked(file, timeout=1):
        os.close(theirs)
    print(codes([child]))
    """
    assert program(code, {}, prelude=HELPERS) == Outcome(0, "[0]\n")


def test_a_child_of_multiprocessing_receives_its_own_responses(program: Program) -> None:
    code = """
    import multiprocessing
    client = xapi_cli.open_client()
    client.get("/before")
    def work(number):
        return client.get(f"/{number}").text == f"GET /{number}"
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(set(pool.map(work, range(60))))
    """
    with Server([echo(surplus=b"")]) as server:
        ran = program(code, with_token(server))

    assert ran == Outcome(0, "{True}\n")
