"""A process between a client and the agent that passes their messages on, and stops at each step of a call."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from xapi_cli.agent import protocol

STEPS = ("before the greeting", "after the greeting", "after the request", "in the response", "at the end")


class Left(Exception):
    """One of both ends has been killed."""


class Between:
    """Listen in the runtime directory *ours* in place of the agent of the runtime directory *theirs*.

    *at* is called at each step with its name and the process id of the worker, 0 if it is not known. It raises Left
    after it has killed the client. *arrived* and *answered* are set when the server has the request, and when it has
    sent half of its response; *proceed* is called at both steps, and at the end.
    """

    def __init__(
        self,
        ours: Path,
        theirs: Path,
        at: Callable[[str, int], None],
        *,
        arrived: threading.Event,
        answered: threading.Event,
        proceed: Callable[[str], None],
    ) -> None:
        (ours / "xapi").mkdir(mode=0o700)
        (ours / "xapi" / "keeper").symlink_to(theirs / "xapi" / "keeper")
        self._theirs = str(theirs / "xapi" / "agent")
        self._at, self._arrived, self._answered, self._proceed = at, arrived, answered, proceed
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(ours / "xapi" / "agent"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self.failures: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.failures:
            raise self.failures[0]

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
            with client, socket.socket(socket.AF_UNIX) as worker:
                client.settimeout(30)
                worker.settimeout(30)
                self._pass_on(client, worker)
        except (Left, EOFError, ConnectionError, FileNotFoundError):
            pass  # as if the process that was killed had been connected directly
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self.failures.append(error)
        finally:
            for step in STEPS:
                self._proceed(step)

    def _pass_on(self, client: socket.socket, worker: socket.socket) -> None:
        self._at(STEPS[0], 0)
        worker.connect(self._theirs)
        kind, content = protocol.receive(worker)
        pid = int(content.split()[0])
        self._at(STEPS[1], pid)
        if _has_ended(worker):
            client.shutdown(socket.SHUT_RD)  # a client notices it when it sends its request
        protocol.send(client, kind, content)
        request, descriptors = protocol.receive_request(client)
        socket.send_fds(worker, [b"H" + len(request).to_bytes(4, "little")], descriptors)
        worker.sendall(request)
        for number in descriptors:
            os.close(number)
        for event, step in ((self._arrived, STEPS[2]), (self._answered, STEPS[3])):
            assert event.wait(30), step
            self._at(step, pid)
            self._proceed(step)
        while True:
            kind, content = protocol.receive(worker)
            if kind == b"X":
                self._at(STEPS[4], pid)
            protocol.send(client, kind, content)


def _has_ended(worker: socket.socket) -> bool:
    worker.setblocking(False)
    try:
        return not worker.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        worker.settimeout(30)
