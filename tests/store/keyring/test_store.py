"""The keyring as it is: it sleeps, dies, locks, forgets, raises. Each case is a process of its own, as a command is."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.keyring_session import KeyringSession
from tests.store.conftest import Open
from xapi_cli.store.keyring.items import service_of
from xapi_cli.tokens import Identity, Record, Token

pytestmark = pytest.mark.slow  # waits for limits

ME = Identity("https://api.test", "me@example.com")
REMEDY = "use --storage file, or set XAPI_STORAGE=file"
READ = "print(failing(lambda: store().read(ME)), flush=True)"

Run = Callable[..., subprocess.Popen[str]]


def ended(process: "subprocess.Popen[str]", within: float = 30) -> tuple[list[str], float]:
    """Return the lines of stdout, and the seconds that the visit took."""
    out, err = process.communicate(timeout=within)
    assert process.returncode == 0, err
    return out.splitlines(), float(err.strip() or 0)


def fake(name: str, **more: str) -> dict[str, str]:
    return {"PYTHON_KEYRING_BACKEND": f"fake_keyrings.{name}", **more}


@pytest.mark.parametrize(
    "backend",
    ["fake_keyrings.Sleeping", "sleeping_module.Keyring"],
    ids=["a call that sleeps", "an import that sleeps"],
)
def test_a_keyring_that_sleeps_is_given_up_after_three_seconds(run: Run, tmp_path: Path, backend: str) -> None:
    started = time.monotonic()
    imported = "import keyring.core\n"  # before the clock starts, as a busy machine takes its time
    visits = [
        run(
            f"{imported}failing(lambda: store().{verb})",
            {"PYTHON_KEYRING_BACKEND": backend, "STATE": str(tmp_path / verb[:5])},  # apart, so that none has to wait
        )
        for verb in ("probe()", "read(ME)", "write(ME, Record(Token('t')))", "delete(ME)")
    ]
    for lines, took in map(ended, visits):
        assert lines == [f"KeyringTimeout: the keyring did not answer within 3 s; unlock it, or {REMEDY}"]
        assert 2.9 <= took <= 4.5
    assert time.monotonic() - started < 12  # the thread that hangs does not keep the process


def test_a_store_does_not_ask_a_silent_keyring_again(run: Run) -> None:
    code = "s = store(patience=1)\nfor _ in range(5): failing(lambda: s.read(ME))"
    started = time.monotonic()
    run(code, fake("Sleeping")).communicate(timeout=20)
    assert time.monotonic() - started < 2.5


def test_somebody_who_is_there_is_told_and_waited_for(run: Run) -> None:
    lines, _ = ended(
        run("print(failing(lambda: store(unlock_wait=60).read(ME)))", fake("Slow", FAKE_KEYRING_SECONDS="4"))
    )
    assert lines == ["note: waiting for the keyring, which may be asking to be unlocked", "None"]


def test_a_slow_keyring_is_waited_for_as_long_as_it_answers(run: Run) -> None:
    code = "s = store(patience=2)\ns.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token, s.delete(ME))"
    lines, _ = ended(run(code, fake("Slow", FAKE_KEYRING_SECONDS="0.7")))  # writing takes three steps
    assert lines == ["t True"]


def test_a_keyring_that_falls_silent_in_the_middle_is_given_up_after_three_seconds(run: Run) -> None:
    lines, took = ended(
        run("import keyring.core\nfailing(lambda: store().write(ME, Record(Token('t'))))", fake("DyingAway"))
    )
    assert lines == [f"KeyringTimeout: the keyring did not answer within 3 s; unlock it, or {REMEDY}"]
    assert 2.9 <= took <= 3.9


def test_a_keyring_that_does_not_delete_is_a_warning_when_it_is_probed(run: Run) -> None:
    lines, _ = ended(run("store().probe(); failing(lambda: store().delete(ME)); print('end')", fake("Undeletable")))
    assert lines == [
        (
            "note: deleting from the keyring failed (PasswordDeleteError): "
            "`xapi logout` may have to leave there what it should delete"
        ),
        "end",
    ]


def test_nobody_is_told_about_a_keyring_that_is_quick(run: Run) -> None:
    code = "print(failing(lambda: store(unlock_wait=60).read(ME)))"
    assert ended(run(code, fake("Slow", FAKE_KEYRING_SECONDS="0.3")))[0] == ["None"]


RAISED = [
    "KeyringError",
    "PasswordSetError",
    "RuntimeError",
    "ItemNotFoundException",
    "SecretServiceNotAvailableException",
    "DBusErrorResponse",
    "SizeLimitError",
    "ConnectionResetError",
    "FileNotFoundError",
    "UnicodeEncodeError",
    "TypeError",
    "ModuleNotFoundError",
    "AttributeError",
    "ValueError",
    "MemoryError",
    "RecursionError",
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "PanicException",
]


def test_whatever_a_backend_raises_is_a_store_error_without_its_text(run: Run) -> None:
    process = run(
        "import traceback\n"
        "verbs = (lambda s: s.probe(), lambda s: s.read(ME), lambda s: s.write(ME, Record(Token('CANARY' * 500))),"
        " lambda s: s.delete(ME))\n"
        f"for name, verb in ((name, verb) for name in {RAISED!r} for verb in verbs):\n"
        "    os.environ['FAKE_KEYRING_RAISES'] = name\n"
        "    try: verb(store())\n"
        "    except StoreError as error:\n"
        "        print(error)\n"
        "        traceback.print_exception(error, chain=True)\n"
        "        while error:\n"
        "            assert 'CANARY' not in repr(error)\n"
        "            error = error.__cause__ or error.__context__\n",
        fake("Raising"),
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    told = [line.partition(" failed ")[2] for line in out.splitlines()]
    assert told == [f"({name}); run `xapi doctor`, or {REMEDY}" for name in RAISED for _ in range(4)]
    assert "CANARY" not in out
    assert "CANARY" not in err.replace("Token('CANARY' * 500)", "")


def test_a_locked_keyring_is_said_to_be_locked(run: Run) -> None:
    lines, took = ended(run(READ, fake("Raising", FAKE_KEYRING_RAISES="KeyringLocked")))
    assert lines == [f"KeyringLocked: the keyring is locked; unlock it, or {REMEDY}", "None"]
    assert took < 0.5  # nothing is tried again: a dialog that was dismissed does not come back


def test_errors_in_passing_are_tried_again(run: Run) -> None:
    code = "s = store(); s.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token, s.delete(ME))"
    assert ended(run(code, fake("Flaky")))[0] == ["t True"]


def test_a_keyring_that_forgets_is_found_out(run: Run) -> None:
    said = f"KeyringNotPersistent: the keyring takes records and does not keep them; {REMEDY}"
    code = (
        "failing(lambda: store().probe())\n"
        "failing(lambda: store().write(ME, Record(Token('t'))))\n"
        "failing(lambda: store().write(ME, Record(Token('t' * 5000))))\n"
        "print(store().read(ME))"
    )
    out, err = run(code, fake("Forgetful")).communicate(timeout=30)
    assert out.splitlines() == [said, said, said, "None"], err


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("keyring.backends.null.Keyring", "the keyring backend keyring.backends.null.Keyring keeps nothing"),
        ("keyring.backends.fail.Keyring", "the keyring backend keyring.backends.fail.Keyring keeps nothing"),
        ("missing.Keyring", "the keyring backend cannot be loaded (ModuleNotFoundError)"),
        ("json.Keyring", "the keyring backend cannot be loaded (AttributeError)"),
        ("nonsense", "the keyring backend cannot be loaded (ValueError)"),
    ],
)
def test_a_named_backend_that_is_none_is_no_keyring(run: Run, backend: str, said: str) -> None:
    lines, _ = ended(run(READ, {"PYTHON_KEYRING_BACKEND": backend}))
    assert lines[0].startswith(f"NoKeyring: {said}; ")
    assert lines[0].endswith(REMEDY)


def test_without_a_session_bus_there_is_no_keyring(run: Run) -> None:
    lines, took = ended(run(READ))
    assert lines == [f"NoKeyring: no usable keyring on this machine; {REMEDY}", "None"]
    assert took < 3


def test_nothing_but_the_record_and_nothing_of_the_probe_is_left(opened: Open, gnome: KeyringSession) -> None:
    store = opened("keyring")
    store.probe()
    store.write(ME, Record(Token("x" * 5000), "password"))
    store.write(ME, Record(Token("y"), "password"))
    assert [label for label in gnome.labels() if "xapi" in label] == [
        "Password for 'me@example.com' on 'xapi:me@example.com@https://api.test'"
    ]
    assert store.delete(ME) is True
    assert gnome.count("xapi") == 0


def test_an_item_that_another_tool_made_is_replaced_and_logout_removes_both(
    opened: Open, gnome: KeyringSession
) -> None:
    make = (
        "import secretstorage as s; c = s.get_default_collection(s.dbus_init()); "
        f"c.create_item('xapi elsewhere', {{'service': {service_of(ME)!r}, 'username': 'me@example.com'}}, b'junk')"
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
def test_junk_in_the_keyring_is_no_token_and_is_overwritten(opened: Open, gnome: KeyringSession, junk: bytes) -> None:
    attributes = {"service": service_of(ME), "username": "me@example.com", "application": "Python keyring library"}
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


def test_a_frozen_daemon_costs_every_one_of_many_processes_three_seconds(
    run: Run, gnome_keyring: KeyringSession
) -> None:
    gnome_keyring.freeze()
    started = time.monotonic()
    visits = [run(READ, gnome_keyring.environ | DIRECT) for _ in range(6)]
    results = [ended(visit) for visit in visits]
    assert {lines[0].partition(":")[0] for lines, _ in results} == {"KeyringTimeout"}
    assert all(took < 4 for _, took in results)
    assert time.monotonic() - started < 8
    gnome_keyring.thaw()
    assert ended(run(READ, gnome_keyring.environ | DIRECT))[0] == ["None"]


DIRECT = {"PYTHON_KEYRING_BACKEND": "keyring.backends.SecretService.Keyring"}


def test_a_locked_keyring_nobody_can_unlock_is_left_at_once(run: Run, gnome_keyring: KeyringSession) -> None:
    assert ended(run(READ, gnome_keyring.environ))[0] == ["None"]
    gnome_keyring.lock()
    lines, took = ended(run(READ, gnome_keyring.environ))
    assert lines[0] == f"KeyringLocked: the keyring is locked; unlock it, or {REMEDY}"
    assert took < 3


def test_a_daemon_that_died_is_waited_for_when_it_comes_back(run: Run, gnome_keyring: KeyringSession) -> None:
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


def test_many_clients_at_once_neither_fail_nor_kill_the_daemon(run: Run, gnome_keyring: KeyringSession) -> None:
    pid = gnome_keyring.pid
    clients = [run(LOOP, gnome_keyring.environ) for _ in range(12)]
    assert [ended(client, within=100)[0] for client in clients] == [["done"]] * 12
    assert gnome_keyring.lives
    assert gnome_keyring.pid == pid
    assert gnome_keyring.count("xapi") == 1


def test_a_killed_client_blocks_nobody_and_leaves_the_old_record_or_the_new(
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


def test_a_client_that_was_stopped_in_line_goes_on(run: Run, gnome_keyring: KeyringSession) -> None:
    client = run(
        "s = store(); s.read(ME); print('read', flush=True); time.sleep(0.5); print(s.read(ME))", gnome_keyring.environ
    )
    assert client.stdout is not None
    client.stdout.readline()
    client.send_signal(signal.SIGSTOP)
    time.sleep(4)
    client.send_signal(signal.SIGCONT)
    assert ended(client)[0] == ["None"]


def test_a_state_folder_that_cannot_be_written_costs_a_warning_and_the_lock(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")
    code = "s = store(); s.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token)"
    lines, _ = ended(run(code, fake("Plain")))
    assert lines == [
        f"note: the state directory {tmp_path}/state cannot be written: Not a directory; going on without locks",
        "t",
    ]


def test_a_holder_that_hangs_does_not_hold_up_the_others_for_longer_than_their_patience(run: Run, state: Path) -> None:
    holder = run(
        "from xapi_cli.system.lock import locked\n"
        "with locked(Path(os.environ['STATE']) / 'locks/keyring.lock', limit=5):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    lines, took = ended(run(READ, fake("Plain")))
    assert lines[0].startswith("KeyringTimeout: ")
    assert 2 < took < 3.5
    holder.kill()
    holder.communicate()
    assert ended(run(READ, fake("Plain")))[0] == ["None"]


def test_a_long_line_of_healthy_processes_is_waited_for(run: Run) -> None:
    visits = [run(READ, fake("Slow", FAKE_KEYRING_SECONDS="0.7")) for _ in range(8)]
    assert [ended(visit)[0] for visit in visits] == [["None"]] * 8  # the last one waits for five seconds


def test_those_in_line_wait_for_a_long_visit_to_a_slow_keyring(run: Run) -> None:
    env = fake("Slow", FAKE_KEYRING_SECONDS="0.7")
    ended(run("store().write(ME, Record(Token('t')))", fake("Plain")))
    visits = [run("print(store().delete(ME))", env) for _ in range(3)]  # the first takes six steps, over four seconds
    assert sorted(ended(visit)[0] for visit in visits) == [["False"], ["False"], ["True"]]


def test_each_visit_costs_what_it_must(opened: Open) -> None:
    store = opened("Plain")
    from fake_keyrings import Plain  # type: ignore[import-not-found]  # on the path only while this runs

    def calls_of(visit: Callable[[], object]) -> list[str]:
        Plain.calls.clear()
        visit()
        return list(Plain.calls)

    assert calls_of(lambda: store.read(ME)) == ["get"]
    assert calls_of(lambda: store.write(ME, Record(Token("t")))) == ["set", "get"]
    assert calls_of(lambda: store.write(ME, Record(Token("t")))) == ["set", "get"]
    assert calls_of(store.probe) == ["set", "get", "delete"]
    assert calls_of(lambda: opened("Plain").write(ME, Record(Token("t")))) == ["get", "set", "get"]


def test_service_names_are_one_an_account_and_harmless() -> None:
    assert service_of(ME) == "xapi:me@example.com@https://api.test"
    assert (
        service_of(Identity("https://api.test", "a\0\udcff\n\\b"))
        == "xapi:a\\u0000\\udcff\\u000a\\u005cb@https://api.test"
    )


def test_importing_the_store_imports_neither_keyring_nor_filelock(run: Run) -> None:
    code = (
        "file = store('file'); file.probe(); file.write(ME, Record(Token('t'))); file.read(ME); file.delete(ME)\n"
        "store('none').probe()\n"
        "heavy = ('keyring', 'filelock', 'secrets', 'tempfile', 'logging', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert ended(run(code))[0] == ["[]"]
