"""The real gnome-keyring: its items, other programs, a daemon that is frozen or restarts, and many processes."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.store.conftest import Open
from tests.store.keyring.processes import ME, READ, REMEDY, Run, ended
from tests.support.keyring_session import KeyringSession
from tests.support.threads import wait_until
from xapi_cli.store.keyring.items import services_of
from xapi_cli.tokens import Record, Token

pytestmark = pytest.mark.slow  # waits for time limits


def test_only_the_record_remains_in_the_keyring(opened: Open, gnome: KeyringSession) -> None:
    store = opened("keyring")
    store.probe()
    store.write(ME, Record(Token("x" * 5000), "password"))
    store.write(ME, Record(Token("y"), "password"))
    assert [label for label in gnome.labels() if "xapi" in label] == [
        "Password for 'me@example.com' on 'xapi:me@example.com@https://api.test'"
    ]
    assert store.delete(ME) is True
    assert gnome.count("xapi") == 0


def test_an_item_of_another_program_is_replaced_and_logout_deletes_both(opened: Open, gnome: KeyringSession) -> None:
    make = (
        "import secretstorage as s; c = s.get_default_collection(s.dbus_init()); "
        f"c.create_item('xapi elsewhere', {{'service': {services_of(ME)[0]!r}, 'username': 'me@example.com'}}, b'junk')"
    )
    store = opened("keyring")
    gnome.python(make)
    assert store.read(ME) is None
    store.write(ME, Record(Token("new")))
    assert store.read(ME) == Record(Token("new"))
    gnome.python(make)
    assert store.delete(ME) is True
    assert gnome.count("xapi") == 0


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe", b"{", b'{"version": 9}', b"x" * 1_000_000, b'{"pieces": 3}', b"~"])
def test_garbage_in_the_keyring_is_treated_as_no_token_and_overwritten(
    opened: Open, gnome: KeyringSession, junk: bytes
) -> None:
    attributes = {"service": services_of(ME)[0], "username": "me@example.com", "application": "Python keyring library"}
    gnome.python(
        "import secretstorage as s; c = s.get_default_collection(s.dbus_init()); "
        f"c.create_item('xapi', {attributes!r}, {junk[:10]!r} * {max(1, len(junk) // 10)}, replace=True)"
    )
    store = opened("keyring")
    assert store.read(ME) is None
    store.write(ME, Record(Token("new")))
    assert store.read(ME) == Record(Token("new"))
    store.delete(ME)
    assert gnome.count("xapi") == 0


def test_a_frozen_daemon_delays_each_of_many_processes_by_three_seconds(
    run: Run, gnome_keyring: KeyringSession
) -> None:
    gnome_keyring.freeze()
    started = time.monotonic()
    readers = [run(READ, gnome_keyring.environ | DIRECT) for _ in range(6)]
    results = [ended(reader) for reader in readers]
    assert {lines[0].partition(":")[0] for lines, _ in results} == {"KeyringTimeout"}
    assert all(took < 8 for _, took in results)
    assert time.monotonic() - started < 14  # one after the other would take 18 s
    gnome_keyring.thaw()
    assert ended(run(READ, gnome_keyring.environ | DIRECT))[0] == ["None"]


DIRECT = {"PYTHON_KEYRING_BACKEND": "keyring.backends.SecretService.Keyring"}


def test_a_locked_keyring_without_a_user_fails_immediately(run: Run, gnome_keyring: KeyringSession) -> None:
    assert ended(run(READ, gnome_keyring.environ))[0] == ["None"]
    gnome_keyring.lock()
    lines, took = ended(run(READ, gnome_keyring.environ))
    assert lines[0] == f"KeyringLocked: the keyring is locked; unlock it, or {REMEDY}"
    assert took < 3


def test_the_store_waits_for_a_daemon_that_restarts(run: Run, gnome_keyring: KeyringSession) -> None:
    code = "store().write(ME, Record(Token('kept'))); print('written')"
    assert ended(run(code, gnome_keyring.environ))[0] == ["written"]
    gnome_keyring.restart()
    read = "print(store().read(ME).token.access_token)"
    assert ended(run(read, gnome_keyring.environ))[0] == ["kept"]


LOOP = """
for number in range(10):
    record = Record(Token(f"{os.getpid()}-{number}-" + "x" * 900))
    if number % 3 == 0: store().write(ME, record)
    else: assert store().read(ME) is not None
print("done")
"""


def test_many_concurrent_clients_neither_fail_nor_crash_the_daemon(run: Run, gnome_keyring: KeyringSession) -> None:
    pid = gnome_keyring.pid
    clients = [run(LOOP, gnome_keyring.environ) for _ in range(12)]
    assert [ended(client, within=100)[0] for client in clients] == [["done"]] * 12
    assert gnome_keyring.lives
    assert gnome_keyring.pid == pid
    assert gnome_keyring.count("xapi") == 1


def test_probes_with_different_state_directories_do_not_disturb_each_other(
    run: Run, gnome_keyring: KeyringSession, tmp_path: Path
) -> None:
    held, go_on = tmp_path / "held", tmp_path / "go-on"
    first = run(
        "from xapi_cli.store.keyring.items import BackendItems\n"
        "get = BackendItems.get\n"
        "def wait(*args):\n"
        f"    Path({str(held)!r}).touch()\n"
        f"    while not Path({str(go_on)!r}).exists(): time.sleep(0.01)\n"
        "    return get(*args)\n"
        "BackendItems.get = wait\n"
        "failing(store(timeout=20).probe); print('end')",
        gnome_keyring.environ | {"STATE": str(tmp_path / "one")},
    )
    wait_until(held.exists, "the item has been written")
    second = run("failing(store().probe); print('end')", gnome_keyring.environ | {"STATE": str(tmp_path / "two")})
    outcome = ended(second)[0]
    go_on.touch()
    assert [outcome, ended(first)[0]] == [["end"]] * 2
    assert gnome_keyring.count("probe") == 0


def test_a_probe_deletes_the_item_of_one_that_was_killed(run: Run, gnome_keyring: KeyringSession) -> None:
    killed = run(
        "from xapi_cli.store.keyring.items import BackendItems\n"
        "BackendItems.delete = lambda *_: os.kill(os.getpid(), 9)\n"
        "store().probe()",
        gnome_keyring.environ,
    )
    killed.communicate(timeout=30)
    assert gnome_keyring.count("probe") == 1
    assert ended(run("store().probe(); print('end')", gnome_keyring.environ))[0] == ["end"]
    assert gnome_keyring.count("probe") == 0


def test_a_killed_client_blocks_no_process_and_leaves_the_old_record_or_the_new_one(
    run: Run, gnome_keyring: KeyringSession
) -> None:
    forever = "s = store()\nwhile True: s.write(ME, Record(Token('a' * 1000))); print('.', flush=True)"
    ended(run("store().write(ME, Record(Token('old')))", gnome_keyring.environ))
    for pause in (0.0, 0.003, 0.007, 0.011, 0.017, 0.023):
        client = run(forever, gnome_keyring.environ)
        assert client.stdout is not None
        client.stdout.readline()
        time.sleep(pause)
        client.kill()
        client.communicate()
        lines, _ = ended(run("print(store().read(ME).token.access_token[:3])", gnome_keyring.environ))
        assert lines == ["aaa"]
    assert gnome_keyring.lives
    assert gnome_keyring.count("xapi") == 1


def test_a_process_that_was_stopped_in_the_queue_continues(run: Run, gnome_keyring: KeyringSession) -> None:
    stop = f"os.kill(os.getpid(), {int(signal.SIGSTOP)})"
    client = run(f"s = store(); s.read(ME); {stop}; print(s.read(ME))", gnome_keyring.environ)
    os.waitid(os.P_PID, client.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    time.sleep(4)  # longer than the time limit of the store
    client.send_signal(signal.SIGCONT)
    assert ended(client)[0] == ["None"]
