"""A separate machine for one test: mount and process namespaces with users, home directories, sudo and sshd.

Nothing of the real machine is changed, and all its processes end with the process of the test, even if that is killed.
The network is that of the real machine.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.agent.conftest import PATIENT, children
from tests.support.program import PROGRAM, Outcome
from tests.support.skips import IMPOSSIBLE
from tests.support.threads import wait_until
from tests.tools.documents import ROOT as CHECKOUT

_TIMEOUT = 60  # seconds
_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--cgroup")

# Runs its arguments in a new control group, which ends with them.
_IN_CONTROL_GROUP = """
set -eu
groups=$(mktemp -d)
mount -t cgroup2 machine "$groups"
group=$(mktemp -d "$groups$(sed -n s/^0:://p /proc/self/cgroup)/xapi-XXXXXX")
status=0
(echo 0 >"$group/cgroup.procs" && exec "$@") || status=$?
find "$group" -depth -type d -exec rmdir {} ';'
umount "$groups"
rmdir "$groups"
exit "$status"
"""
_WITH_CONTROL_GROUP = ("unshare", "--mount", "sh", "-c", _IN_CONTROL_GROUP, "sh")


class User(NamedTuple):
    """A user of the machine."""

    name: str
    uid: int

    @property
    def home(self) -> str:
        """The home directory."""
        return f"/run/home/{self.name}"

    @property
    def runtime(self) -> str:
        """The runtime directory, which a login session would have in XDG_RUNTIME_DIR."""
        return f"/run/user/{self.uid}"


ROOT, ALICE, BOB = User("root", 0), User("alice", 54321), User("bob", 54322)
SEARCH_PATH = os.pathsep.join([
    os.path.dirname(PATIENT[0]), str(PROGRAM.parent), "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
])  # fmt: skip

_SETUP = f"""
set -eu
umask 022
mount -t tmpfs -o mode=755 machine /run
mkdir /run/sshd /run/home /run/user /run/etc /run/systemd /run/systemd/system
mount -t tmpfs -o mode=755 machine /var/log
cp /etc/passwd /etc/group /etc/shadow /run/etc
sed -i '/^root:/d; /:{ALICE.uid}:/d; /:{BOB.uid}:/d' /run/etc/passwd
sed -i 's/^root:[^:]*:/root:*:/' /run/etc/shadow
add() {{
    printf '%s:x:%s:%s::/run/home/%s:/bin/bash\\n' "$1" "$2" "$2" "$1" >>/run/etc/passwd
    [ "$2" = 0 ] || printf '%s:x:%s:\\n' "$1" "$2" >>/run/etc/group
    [ "$2" = 0 ] || printf '%s:*:20000:0:99999:7:::\\n' "$1" >>/run/etc/shadow
    mkdir -m 700 "/run/home/$1" "/run/user/$2"
    printf '%s\\n' "export PATH='{SEARCH_PATH}'" "PS1='host$ '" >"/run/home/$1/.profile"
    chown -R "$2:$2" "/run/home/$1" "/run/user/$2"
}}
{"; ".join(f"add {user.name} {user.uid}" for user in (ROOT, ALICE, BOB))}
for file in passwd group shadow; do mount --bind "/run/etc/$file" "/etc/$file"; done
if [ -e /etc/sudoers ]; then
    printf '%s\\n' 'Defaults env_reset' "Defaults secure_path=\\"{SEARCH_PATH}\\"" \\
        'root ALL=(ALL:ALL) ALL' 'alice ALL=(ALL:ALL) NOPASSWD:SETENV: ALL' >/run/etc/sudoers
    chmod 440 /run/etc/sudoers
    mount --bind /run/etc/sudoers /etc/sudoers
fi
expose() {{
    hidden=$1 number=0
    shift
    for directory; do
        number=$((number + 1))
        mkdir -p "/run/exposed/$number"
        mount --rbind "$directory" "/run/exposed/$number"
    done
    mount -t tmpfs -o mode=755 machine "$hidden"
    number=0
    for directory; do
        number=$((number + 1))
        mkdir -p "$directory"
        mount --move "/run/exposed/$number" "$directory"
    done
}}
"""


_OWN_GROUPS = f"mount -t cgroup2 machine /sys/fs/cgroup; chown -R {ALICE.name}: /sys/fs/cgroup\n"


class Machine:
    """The machine within a `with` block; only root can have one. With *has_groups*, alice can make control groups."""

    def __init__(self, *, has_groups: bool = False) -> None:
        self._has_groups = has_groups
        self._unshare: subprocess.Popen[bytes] | None = None
        self.pid = 0  # of its first process

    def __enter__(self) -> Self:
        groups = _OWN_GROUPS if self._has_groups else ""
        expose = "".join(f"expose {shlex.join(words)}\n" for words in _hidden())
        setup = f"{_SETUP}{groups}{expose}echo ready\nexec 1>&2\ncat\n"
        self._unshare = process = subprocess.Popen(
            [*(_WITH_CONTROL_GROUP if self._has_groups else ()), *_UNSHARE, "sh", "-c", setup],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        with process.stdout:
            ready = process.stdout.readline()
        if ready != b"ready\n":
            self.__exit__()
            raise AssertionError("the machine did not start")
        self.pid = _first_process(process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._unshare is not None
        assert self._unshare.stdin is not None
        self._unshare.stdin.close()  # ends its first process, and thereby all
        self._unshare.wait(30)

    def path(self, path: str) -> Path:
        """Return the path by which this process reaches *path* of the machine."""
        return Path(f"/proc/{self.pid}/root{path}")

    def command(self, user: User, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the start of a command that runs the rest of it as *user*, in its own session.

        It has no XDG_RUNTIME_DIR, unless *env*, which adds to its environment, contains it.
        """
        names = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
        environ = {**names, "LANG": "C.UTF-8", "PATH": SEARCH_PATH, **(env or {})}
        return (
            "nsenter", f"--target={self.pid}", "--mount", "--pid", "--cgroup", f"--wdns={user.home}",
            *("setpriv", f"--reuid={user.name}", f"--regid={user.uid}", "--init-groups"),
            *("env", "--ignore-environment", *(f"{name}={value}" for name, value in environ.items())),
        )  # fmt: skip

    def run(self, user: User, *shell: str, env: Mapping[str, str] | None = None) -> Outcome:
        """Run lines of shell as *user*; return the exit code and the output of the shell."""
        command = [*self.command(user, env), "bash", "-c", "\n".join(shell)]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False,
            start_new_session=True,
        )  # fmt: skip
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    def processes(self) -> dict[int, str]:
        """Return the command lines of its processes, by their ids in the machine."""
        listed = self.run(ROOT, "ps -eo pid=,args=").out
        return {int(pid): line for pid, _, line in (row.strip().partition(" ") for row in listed.splitlines())}

    def wait_for_file(self, path: str) -> None:
        """Wait until *path* exists in the machine."""
        wait_until(self.path(path).exists, f"{path} exists", timeout=_TIMEOUT)


def _first_process(pid: int) -> int:
    """Return the descendant of the process *pid* that is the first one of its namespace."""
    while not re.search(r"^NSpid:.*\t1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE):
        (pid,) = children(pid)
    return pid


def check_possible(*programs: str, has_groups: bool = False) -> None:
    """Skip the test if there can be no machine, or if one of *programs* is missing."""
    if missing := [name for name in programs if shutil.which(name, path=SEARCH_PATH) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip(f"{IMPOSSIBLE}only root can run processes of other users")
    probe = [*_UNSHARE, "mount", "-t", "tmpfs", "machine", "/run"]
    if subprocess.run(probe, capture_output=True, timeout=_TIMEOUT, check=False).returncode != 0:
        pytest.skip(f"{IMPOSSIBLE}no file system can be mounted")
    probe = [*_WITH_CONTROL_GROUP, "true"]
    if has_groups and subprocess.run(probe, capture_output=True, timeout=_TIMEOUT, check=False).returncode != 0:
        pytest.skip(f"{IMPOSSIBLE}no control group can be made")


def _hidden() -> list[list[str]]:
    """Return the directories that only root can enter, each with those in it that all users need."""
    needed = {Path(sys.base_prefix).resolve(), CHECKOUT.resolve(), PROGRAM.parent.parent.resolve()}
    found: dict[Path, list[str]] = {}
    for directory in sorted(needed):
        if needed.isdisjoint(directory.parents) and (above := _first_hidden(reversed(directory.parents))):
            found.setdefault(above, []).append(str(directory))
    return [[str(above), *directories] for above, directories in found.items()]


def _first_hidden(directories: Iterable[Path]) -> Path | None:
    return next((each for each in directories if not each.stat().st_mode & 0o001), None)
