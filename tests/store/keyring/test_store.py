"""Keyrings that hang, lock, lose items or raise exceptions; each case is a separate process, like a command."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.conftest import Open
from tests.store.keyring.processes import ME, READ, REMEDY, Run, ended
from xapi_cli.tokens import Record, Token

pytestmark = pytest.mark.slow  # waits for time limits


def fake(name: str, **more: str) -> dict[str, str]:
    return {"PYTHON_KEYRING_BACKEND": f"fake_keyrings.{name}", **more}


@pytest.mark.parametrize(
    "backend",
    ["fake_keyrings.Unresponsive", "sleeping_module.Keyring"],
    ids=["a call that sleeps", "an import that sleeps"],
)
def test_a_keyring_that_hangs_times_out_after_three_seconds(run: Run, tmp_path: Path, backend: str) -> None:
    started = time.monotonic()
    imported = "import keyring.core\n"  # before the measurement, because a busy machine takes long
    readers = [
        run(
            f"{imported}failing(lambda: store().{verb})",
            {
                "PYTHON_KEYRING_BACKEND": backend,
                "STATE": str(tmp_path / verb[:5]),
            },  # separate state, so that none has to wait
        )
        for verb in ("probe()", "read(ME)", "write(ME, Record(Token('t')))", "delete(ME)")
    ]
    for lines, took in map(ended, readers):
        assert lines == [f"KeyringTimeout: the keyring did not respond within 3 s; unlock it, or {REMEDY}"]
        assert 2.9 <= took <= 4.5
    assert time.monotonic() - started < 12  # the thread that hangs does not keep the process


def test_a_store_does_not_call_an_unresponsive_keyring_again(run: Run) -> None:
    code = "s = store(timeout=1)\nfor _ in range(5): failing(lambda: s.read(ME))"
    started = time.monotonic()
    run(code, fake("Unresponsive")).communicate(timeout=20)
    assert time.monotonic() - started < 4  # less than five waits


def test_with_a_user_present_the_store_shows_a_message_and_waits(run: Run) -> None:
    lines, _ = ended(
        run("print(failing(lambda: store(unlock_wait=60).read(ME)))", fake("Slow", FAKE_KEYRING_SECONDS="4"))
    )
    assert lines == ["note: waiting for the keyring; it may be waiting for you to unlock it", "None"]


def test_the_store_waits_for_a_slow_keyring_while_it_responds(run: Run) -> None:
    code = "s = store(timeout=2)\ns.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token, s.delete(ME))"
    lines, _ = ended(run(code, fake("Slow", FAKE_KEYRING_SECONDS="0.7")))  # writing takes three steps
    assert lines == ["t True"]


def test_a_keyring_that_hangs_after_some_operations_times_out_after_three_seconds(run: Run) -> None:
    lines, took = ended(
        run(
            "import keyring.core\nfailing(lambda: store().write(ME, Record(Token('t'))))", fake("HangingAfterFirstCall")
        )
    )
    assert lines == [f"KeyringTimeout: the keyring did not respond within 3 s; unlock it, or {REMEDY}"]
    assert 2.9 <= took <= 4.5


def test_a_probe_of_a_keyring_that_cannot_delete_causes_a_warning(run: Run) -> None:
    lines, _ = ended(run("store().probe(); failing(lambda: store().delete(ME)); print('end')", fake("Undeletable")))
    assert lines == [
        (
            "note: deleting from the keyring failed (PasswordDeleteError): "
            "`xapi logout` may not be able to delete records there"
        ),
        "end",
    ]


def test_no_message_is_shown_for_a_fast_keyring(run: Run) -> None:
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


def test_any_exception_of_a_backend_is_a_store_error_without_its_text(run: Run) -> None:
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
    messages = [line.partition(" failed ")[2] for line in out.splitlines()]
    assert messages == [f"({name}); run `xapi doctor`, or {REMEDY}" for name in RAISED for _ in range(4)]
    assert "CANARY" not in out
    assert "CANARY" not in err.replace("Token('CANARY' * 500)", "")


def test_the_error_states_that_the_keyring_is_locked(run: Run) -> None:
    lines, took = ended(run(READ, fake("Raising", FAKE_KEYRING_RAISES="KeyringLocked")))
    assert lines == [f"KeyringLocked: the keyring is locked; unlock it, or {REMEDY}", "None"]
    assert took < 2  # no retry: a dialog that was dismissed is not shown again


def test_transient_errors_are_retried(run: Run) -> None:
    code = "s = store(); s.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token, s.delete(ME))"
    assert ended(run(code, fake("Flaky")))[0] == ["t True"]


def test_a_keyring_that_is_not_persistent_is_detected(run: Run) -> None:
    message = f"KeyringNotPersistent: the keyring accepts records but does not store them; {REMEDY}"
    code = (
        "failing(lambda: store().probe())\n"
        "failing(lambda: store().write(ME, Record(Token('t'))))\n"
        "failing(lambda: store().write(ME, Record(Token('t' * 5000))))\n"
        "print(store().read(ME))"
    )
    out, err = run(code, fake("NotPersistent")).communicate(timeout=30)
    assert out.splitlines() == [message, message, message, "None"], err


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("keyring.backends.fail.Keyring", "the keyring backend keyring.backends.fail.Keyring stores nothing"),
        ("missing.Keyring", "the keyring backend cannot be loaded (ModuleNotFoundError)"),
        ("json.Keyring", "the keyring backend cannot be loaded (AttributeError)"),
        ("nonsense", "the keyring backend cannot be loaded (ValueError)"),
    ],
)
def test_an_unusable_named_backend_is_no_keyring(run: Run, backend: str, message: str) -> None:
    lines, _ = ended(run(READ, {"PYTHON_KEYRING_BACKEND": backend}))
    assert lines[0].startswith(f"NoKeyring: {message}; ")
    assert lines[0].endswith(REMEDY)


def test_without_a_session_bus_there_is_no_keyring(run: Run) -> None:
    lines, took = ended(run(READ))
    assert lines == [f"NoKeyring: no usable keyring on this machine; {REMEDY}", "None"]
    assert took < 3


def test_without_a_lock_the_store_reports_it_and_continues(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    code = "s = store(); s.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token)"
    lines, _ = ended(run(code, fake("Plain")))
    assert lines == ["note: no lock: Not a directory", "note: no lock: Not a directory", "t"]  # one for each call


def test_a_lock_holder_that_hangs_does_not_delay_other_processes_beyond_their_timeout(run: Run, state: Path) -> None:
    holder = run(
        "from xapi_cli.system.lock import locked\n"
        "with locked(StateDirectory(Path(os.environ['STATE']) / 'locks').file('keyring.lock'), timeout=5):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    lines, took = ended(run(READ, fake("Plain")))
    assert lines[0].startswith("KeyringTimeout: ")
    assert 2 < took < 4.5
    holder.kill()
    holder.communicate()
    assert ended(run(READ, fake("Plain")))[0] == ["None"]


def test_a_process_waits_in_a_long_queue_of_healthy_processes(run: Run) -> None:
    readers = [run(READ, fake("Slow", FAKE_KEYRING_SECONDS="0.7")) for _ in range(8)]
    assert [ended(reader)[0] for reader in readers] == [["None"]] * 8  # the last one waits for five seconds


def test_queued_processes_wait_for_a_long_access_to_a_slow_keyring(run: Run) -> None:
    env = fake("Slow", FAKE_KEYRING_SECONDS="0.7")
    ended(run("store().write(ME, Record(Token('t')))", fake("Plain")))
    readers = [run("print(store().delete(ME))", env) for _ in range(3)]  # the first takes six steps, over four seconds
    assert sorted(ended(reader)[0] for reader in readers) == [["False"], ["False"], ["True"]]


def test_each_access_makes_only_the_necessary_calls(opened: Open) -> None:
    store = opened("Plain")
    from fake_keyrings import Plain  # type: ignore[import-not-found]  # on the path only while this runs

    def calls_of(access: Callable[[], object]) -> list[str]:
        Plain.calls.clear()
        access()
        return list(Plain.calls)

    assert calls_of(lambda: store.read(ME)) == ["get"]
    assert calls_of(lambda: store.write(ME, Record(Token("t")))) == ["set", "get"]
    assert calls_of(lambda: store.write(ME, Record(Token("t")))) == ["set", "get"]
    assert calls_of(store.probe) == ["set", "get", "delete"]
    assert calls_of(lambda: opened("Plain").write(ME, Record(Token("t")))) == ["get", "set", "get"]


def test_importing_the_store_imports_no_heavy_library(run: Run) -> None:
    code = (
        "file = store('file'); file.probe(); file.write(ME, Record(Token('t'))); file.read(ME); file.delete(ME)\n"
        "store('none').probe()\n"
        "heavy = ('keyring', 'secrets', 'tempfile', 'logging', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert ended(run(code))[0] == ["[]"]
