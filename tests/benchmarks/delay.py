"""A path with a round-trip time, for servers on this machine: all packets are delayed, also those of a TCP handshake.

A TUN device in its own network namespace leads to a process that returns each packet after half of the
round-trip time, with its source and its destination exchanged. A connection to `FAR` therefore reaches the server at
`NEAR`. Only the time is simulated: the path loses no packet and has no limit of bandwidth.
"""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

NEAR, FAR = "10.0.0.1", "10.0.0.2"

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000  # <linux/if_tun.h>
_MTU = 1500


class NoNamespaceError(Exception):
    """A network namespace or a TUN device is not permitted on this machine."""


def in_namespace(command: Sequence[str]) -> list[str]:
    """Return the command that runs *command* in its own network namespace, as any user."""
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), *command]


@contextmanager
def delayed_path(round_trip: float) -> Iterator[None]:
    """Delay the path to `FAR` by *round_trip* seconds; the process must have its own network namespace.

    Raises NoNamespaceError if that is not possible.
    """
    try:
        device = _open_device("delay0")
        for command in ("link set lo up", f"addr add {NEAR}/30 dev delay0", f"link set delay0 up mtu {_MTU}"):
            subprocess.run(["ip", *command.split()], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoNamespaceError(str(error)) from error
    if (pid := os.fork()) == 0:
        _run_reflector(device, round_trip / 2)
    os.close(device)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)  # closes the device, which deletes it
        os.waitpid(pid, 0)


def _open_device(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _run_reflector(device: int, delay: float) -> None:
    try:
        with suppress(OSError):  # not permitted
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # other processes must not add to the delay
        _reflect(device, delay)
    except BaseException as error:  # noqa: BLE001 - the child must not continue in its parent's code
        print(f"the delaying path ended: {error}", file=sys.stderr)
    os._exit(1)


def _reflect(device: int, delay: float) -> None:
    due: deque[tuple[float, bytes]] = deque()  # in order, because the delay is constant
    while True:
        timeout = max(0.0, due[0][0] - time.monotonic()) if due else None
        if select.select([device], [], [], timeout)[0]:
            packet = os.read(device, _MTU)
            if packet[0] >> 4 == 4:  # IPv4
                due.append((time.monotonic() + delay, reflected(packet)))
        while due and due[0][0] <= time.monotonic():
            os.write(device, due.popleft()[1])


def reflected(packet: bytes) -> bytes:
    """Exchange the addresses of an IPv4 packet; the checksums of IP and TCP are sums, so they remain valid."""
    return packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
