"""The SSH server of a machine, and the command `ssh` with `host` as its name."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.agent.machine import ROOT, SEARCH_PATH, Machine, User
from tests.support.threads import wait_until

_TIMEOUT = 30  # seconds
_ATTEMPTS = 5  # to find a port that no other process takes

# Login sessions get no settings from PAM, and `/`, above all keys, may belong to anyone in a container.
_SERVER = """
ListenAddress 127.0.0.1:{port}
HostKey {directory}/host
PidFile none
AuthorizedKeysFile /run/etc/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PrintLastLog no
PrintMotd no
AcceptEnv XAPI_* XDG_*
SetEnv LANG=C.UTF-8 PATH={path}
"""
_CLIENT = """
Host host
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {directory}/key
    IdentitiesOnly yes
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    BatchMode yes
    LogLevel ERROR
    SendEnv XAPI_AGENT XAPI_BASE_URL XAPI_PASSWORD XAPI_STORAGE XAPI_TOKEN XAPI_USERNAME
"""


@contextmanager
def ssh_server(machine: Machine, user: User, directory: Path) -> Iterator[Path]:
    """Run the SSH server of *machine*; yield a directory with a command `ssh` that knows `host`, with *user*.

    *directory* becomes that of the keys.
    """
    directory.mkdir(mode=0o700)
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    machine.path("/run/etc/authorized_keys").write_bytes((directory / "key.pub").read_bytes())
    port, server = _started(machine, directory)
    host_key = (directory / "host.pub").read_text()
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (directory / "config").write_text(_CLIENT.format(port=port, user=user.name, directory=directory))
    command = directory / "bin" / "ssh"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPATH={SEARCH_PATH} exec ssh -F {directory}/config "$@"\n')
    command.chmod(0o755)
    try:
        yield command.parent
    finally:
        server.kill()  # the sessions end with the machine
        server.wait(_TIMEOUT)


def _started(machine: Machine, directory: Path) -> tuple[int, "subprocess.Popen[bytes]"]:
    log, config = directory / "log", directory / "server"
    for _ in range(_ATTEMPTS):
        port = _free_port()
        log.write_bytes(b"")
        config.write_text(_SERVER.format(port=port, directory=directory, path=SEARCH_PATH))
        command = [*machine.command(ROOT), "/usr/sbin/sshd", "-D", "-f", str(config), "-E", str(log)]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(partial(_has_begun, server, log), "sshd listens", _TIMEOUT)
        if server.poll() is None:
            return port, server
    raise AssertionError(log.read_text())


def _has_begun(server: "subprocess.Popen[bytes]", log: Path) -> bool:
    return server.poll() is not None or b"listening on" in log.read_bytes()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def search_path(directory: Path) -> str:
    """Return the value of PATH with the command in *directory* before all others."""
    return os.pathsep.join([str(directory), SEARCH_PATH])
