"""Keyrings that hang, lock, lose items, prompt or raise exceptions, and which backend is used."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.store.conftest import Open, Run
from tests.support.keyring_session import KeyringSession
from tests.support.program import Process
from xapi_cli.store.access import ExclusiveAccess, Unresponsive, in_time
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.files import StateDirectory
from xapi_cli.system.lock import locked
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
REMEDY = "run `xapi login --storage file` to store the token in a file"
READ = "print(failing(lambda: store().read(ME)), flush=True)"
EVERY = "for verb in (s.probe, lambda: s.read(ME), lambda: s.write(ME, Record(Token('t'))), lambda: s.delete(ME)): "


def ended(process: Process) -> tuple[list[str], float]:
    """Return the lines of stdout, and the seconds that the access took that failed."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.decode().splitlines(), max(map(float, err.split() or "0"))


def fake(name: str, **more: str) -> dict[str, str]:
    return {"PYTHON_KEYRING_BACKEND": f"fake_keyrings.{name}", **more}


def test_a_keyring_that_hangs_fails_in_time_and_is_not_asked_again(run: Run) -> None:
    lines, took = ended(run(f"import keyring.core\ns = store(timeout=1)\n{EVERY} failing(verb)", fake("Unresponsive")))

    assert lines == [f"StoreError: the keyring did not respond within 1 s; unlock it, or {REMEDY}"] * 4
    assert took >= 0.9  # and the others none: otherwise this test takes more than that


def test_a_process_waits_until_its_timeout_for_one_that_hangs_and_gives_up_with_one_that_does(state: Path) -> None:
    options = StoreOptions(StateDirectory(state), {}, lambda hint: None, timeout=1)
    never, waited = threading.Event(), "does not respond to another xapi process, which uses it"

    def access(_: int = 0) -> str:
        try:
            with ExclusiveAccess("keyring", options).granted() as limit:
                return str(in_time(never.wait, limit))
        except Unresponsive as error:
            return str(error)

    with locked(options.state.lock_file("keyring"), timeout=5):
        assert access() == waited
    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(access, range(3))) == ["did not respond within 1 s", waited, waited]
    never.set()


@pytest.mark.parametrize(
    ("backend", "seconds", "readers"),
    [
        ("Slow", "0.4", 4),  # the last one waits for longer than its timeout
        pytest.param(
            *("Working", "1.2", 2),
            marks=pytest.mark.skipif(sys.platform != "linux", reason="the system has no clocks of threads"),
        ),
    ],
)
def test_what_makes_progress_is_waited_for(run: Run, backend: str, seconds: str, readers: int) -> None:
    code = "print(failing(lambda: store(timeout=1).read(ME)))"
    processes = [run(code, fake(backend, FAKE_KEYRING_SECONDS=seconds)) for _ in range(readers)]

    assert [ended(process)[0] for process in processes] == [["None"]] * readers


def test_with_a_user_present_the_store_says_what_it_waits_for(run: Run, tmp_path: Path) -> None:
    code = "print(failing(lambda: store(unlock_wait=60).read(ME)))"
    os.mkfifo(fifo := tmp_path / "fifo")
    process = run(code, fake("Prompting", FAKE_KEYRING_FIFO=str(fifo)))

    assert process.stdout is not None
    assert process.stdout.readline() == b"note: waiting for the keyring; it may be waiting for you to unlock it\n"
    fifo.write_bytes(b"unlocked")
    assert ended(process)[0] == ["None"]
    assert ended(run(code, fake("Plain")))[0] == ["None"]


RAISED = [
    *("KeyringError", "PasswordSetError", "RuntimeError", "SizeLimitError", "FileNotFoundError", "UnicodeEncodeError"),
    *("TypeError", "ModuleNotFoundError", "ValueError", "MemoryError", "RecursionError", "SystemExit"),
    *("KeyboardInterrupt", "GeneratorExit", "PanicException"),
]


def test_any_exception_of_a_backend_is_a_store_error_without_its_text(run: Run) -> None:
    process = run(
        "import traceback\n"
        f"for name in {RAISED!r}:\n"
        "    os.environ['FAKE_KEYRING_RAISES'] = name\n"
        "    s = store()\n"
        f"    {EVERY}\n"
        "        try: verb()\n"
        "        except StoreError as error:\n"
        "            print(error)\n"
        "            traceback.print_exception(error, chain=True)\n",
        fake("Raising"),
    )
    out, err = process.communicate()
    assert process.returncode == 0, err
    messages = [line.partition(" failed ")[2] for line in out.decode().splitlines()]
    assert messages == [f"({name}); run `xapi doctor`, or {REMEDY}" for name in RAISED for _ in range(4)]
    assert b"CANARY" not in out + err


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (fake("Raising", FAKE_KEYRING_RAISES="KeyringLocked"), "StoreError: the keyring is locked; unlock it"),
        (fake("Asking"), "StoreError: the keyring asks for input, which needs a terminal; select another "),
        ({}, "NoBackend: no usable keyring on this machine"),
        ({"DBUS_SESSION_BUS_ADDRESS": "garbage"}, "NoBackend: no usable keyring on this machine"),
        (
            {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"},
            "NoBackend: the keyring backend keyring.backends.fail.Keyring stores nothing",
        ),
        (
            {"PYTHON_KEYRING_BACKEND": "missing.Keyring"},
            "NoBackend: the keyring backend cannot be loaded (ModuleNotFoundError)",
        ),
        ({"PYTHON_KEYRING_BACKEND": "nonsense"}, "NoBackend: the keyring backend cannot be loaded (ValueError)"),
        ({"XDG_CONFIG_HOME": "relative"}, "NoBackend: keyring would read its configuration from the current directory"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_each_state_of_a_keyring_has_its_own_message(run: Run, env: dict[str, str], message: str) -> None:
    (line, last), _ = ended(run(READ, env))

    assert (line.startswith(message), line.endswith(REMEDY), last) == (True, True, "None"), line


def test_transient_errors_are_retried(run: Run) -> None:
    code = "s = store(); s.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token, s.delete(ME))"

    assert ended(run(code, fake("Flaky")))[0] == ["t True"]
    lasting = ended(run(READ, fake("Raising", FAKE_KEYRING_RAISES="DBusErrorResponse")))[0]
    assert lasting == [
        f"StoreError: reading the keyring failed (DBusErrorResponse); run `xapi doctor`, or {REMEDY}",
        "None",
    ]


def test_a_keyring_that_stores_or_deletes_nothing_is_detected(run: Run) -> None:
    code = "s = store()\nfor verb in (s.probe, lambda: s.write(ME, Record(Token('t' * 5000)))): failing(verb)"
    message = f"StoreError: the keyring accepts records but does not store them; {REMEDY}"

    assert ended(run(code, fake("NotPersistent")))[0] == [message] * 2
    message = f"StoreError: writing to the keyring failed (PasswordDeleteError); run `xapi doctor`, or {REMEDY}"
    assert ended(run("failing(store().probe)", fake("Undeletable")))[0] == [message]


def test_what_a_backend_prints_is_discarded_and_stdin_is_left_alone(run: Run) -> None:
    code = "s = store(); s.write(ME, Record(Token('t'))); print(s.read(ME).token.access_token, sys.stdin.fileno())"

    assert ended(run(code, fake("Noisy")))[0] == ["t 0"]


def test_accounts_that_differ_only_in_case_have_separate_items_on_windows(opened: Open) -> None:
    accounts = [Identity(f"https://api.test/{path}", name) for path in "aA" for name in ("anna", "Anna", "stra\xdfe")]
    store = opened("Windows")
    for account in accounts:
        store.write(account, Record(Token(account.key)))

    assert [store.read(account) for account in accounts] == [Record(Token(account.key)) for account in accounts]


# which backend is used

BACKEND = """
s = store()
try: s.read(ME)
except StoreError as error: print(f"{type(error).__name__}: {error}")
print(s.backend)
"""
SECRET_SERVICE = "keyring.backends.SecretService.Keyring"
PLUG_IN = """
from keyring.backend import KeyringBackend
class Plug(KeyringBackend):
    priority = {priority}
    def get_password(self, service, username): return None
    def set_password(self, service, username, password): pass
    def delete_password(self, service, username): pass
"""


def install(site: Path, name: str, code: str) -> None:
    """Install a distribution with a backend in the module *name*."""
    (path := site / f"{name.replace('.', '/')}.py").parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    (info := site / f"{name}-1.dist-info").mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[keyring.backends]\n{name} = {name}\n")


def test_the_best_usable_backend_is_found_and_remembered(
    run: Run, state: Path, tmp_path: Path, shared_gnome_keyring: KeyringSession
) -> None:
    site = tmp_path / "site-packages"
    install(site, "broken", "raise RuntimeError('CANARY')")
    install(site, "weaker", PLUG_IN.format(priority=2))
    install(site, "keyrings.alt.plain", PLUG_IN.format(priority=9))
    traced = f"sys.path.append({str(site)!r})\n{BACKEND}\nprint('keyring.backends.kwallet' in sys.modules)"
    env = shared_gnome_keyring.environ
    assert ended(run(traced, env))[0] == [SECRET_SERVICE, "True"]
    assert ended(run(traced, env))[0] == [SECRET_SERVICE, "False"]  # without a search
    assert ended(run(traced, {}))[0] == ["weaker.Plug", "True"]  # in another session

    install(site, "stronger", PLUG_IN.format(priority=7))
    assert ended(run(traced, env))[0][0] == "stronger.Plug"
    assert (state / "keyring-backend").stat().st_mode & 0o777 == 0o600


def test_a_remembered_backend_that_does_not_work_is_searched_for_again(
    run: Run, state: Path, shared_gnome_keyring: KeyringSession
) -> None:
    env = shared_gnome_keyring.environ | {"FAKE_KEYRING_RAISES": "RuntimeError"}
    ended(run(BACKEND, env))
    good = (state / "keyring-backend").read_text()
    for remembered in ("missing.Keyring", "fake_keyrings.Raising", "os.getcwd", ""):
        (state / "keyring-backend").write_text(good.replace(SECRET_SERVICE, remembered))

        assert ended(run(BACKEND, env))[0] == [SECRET_SERVICE]
        assert (state / "keyring-backend").read_text() == good


def test_the_configuration_of_keyring_names_a_backend(run: Run, tmp_path: Path) -> None:
    config = tmp_path / ".config/python_keyring/keyringrc.cfg"
    config.parent.mkdir(parents=True)
    for text, found in (
        ("[backend]\ndefault-keyring=fake_keyrings.Plain\n", "fake_keyrings.Plain"),
        ("[backend]\ndefault-keyring=missing.Keyring\n", "ModuleNotFoundError"),
        ("nonsense", "MissingSectionHeaderError"),
    ):
        config.write_text(text)
        assert found in ended(run(BACKEND))[0][0]
    config.write_text("[backend]\ndefault-keyring=fake_keyrings.Plain\n")
    config.chmod(0o666)
    assert ended(run(BACKEND))[0][0].startswith("NoBackend: other users can write to the file ")


def test_the_session_bus_is_found_at_its_usual_place(
    run: Run, tmp_path: Path, shared_gnome_keyring: KeyringSession
) -> None:
    env = dict(shared_gnome_keyring.environ)
    context = tmp_path / "context"
    context.mkdir(0o700)
    address = env.pop("DBUS_SESSION_BUS_ADDRESS").removeprefix("unix:path=").partition(",")[0]
    (context / "bus").symlink_to(address)

    lines, _ = ended(
        run(f"{BACKEND}\nprint(os.environ.get('DBUS_SESSION_BUS_ADDRESS'))", env | {"XDG_RUNTIME_DIR": str(context)})
    )
    assert lines == [SECRET_SERVICE, "None"]


# the real gnome-keyring


def test_an_item_of_another_program_is_replaced_and_a_logout_deletes_both(opened: Open, gnome: KeyringSession) -> None:
    service = "xapi:me@example.com@https://api.test"
    store = opened("keyring")
    gnome.add(service, ME.username)
    assert store.read(ME) is None
    store.write(ME, Record(Token("new"), "password"))
    store.probe()
    assert store.read(ME) == Record(Token("new"), "password")
    assert gnome.count("xapi") == 1  # its secret was set
    gnome.add(service, ME.username)
    assert store.delete(ME) is True
    assert gnome.count("xapi") == 0


def test_a_locked_keyring_fails_and_a_daemon_that_restarts_is_waited_for(
    run: Run, gnome_keyring: KeyringSession
) -> None:
    env = gnome_keyring.environ
    assert ended(run("store().write(ME, Record(Token('kept'))); print('written')", env))[0] == ["written"]
    gnome_keyring.lock()
    (line, _), _ = ended(run(READ, env))
    assert line == f"StoreError: the keyring is locked; unlock it, or {REMEDY}"
    gnome_keyring.restart()
    assert ended(run("print(store().read(ME).token.access_token)", env))[0] == ["kept"]


LOOP = """
for number in range(4):
    record = Record(Token(f"{os.getpid()}-{number}-" + "x" * 900))
    if number % 3 == 0: store().write(ME, record)
    else: assert store().read(ME) is not None
print("done")
"""


def test_many_concurrent_clients_neither_fail_nor_crash_the_daemon(run: Run, gnome_keyring: KeyringSession) -> None:
    pid = gnome_keyring.pid
    clients = [run(LOOP, gnome_keyring.environ) for _ in range(4)]

    assert [ended(client)[0] for client in clients] == [["done"]] * 4
    assert (gnome_keyring.lives, gnome_keyring.pid, gnome_keyring.count("xapi")) == (True, pid, 1)


def test_a_killed_client_blocks_no_process_and_leaves_the_old_record_or_the_new_one(
    run: Run, gnome_keyring: KeyringSession
) -> None:
    forever = "s = store()\nwhile True: s.write(ME, Record(Token('a' * 1000))); print('.', flush=True)"
    for pause in (0.0, 0.007, 0.017):
        client = run(forever, gnome_keyring.environ)
        assert client.stdout is not None
        client.stdout.readline()
        time.sleep(pause)  # a moment of another kind in each round
        client.kill()
        client.communicate()
        assert ended(run("print(store().read(ME).token.access_token[:3])", gnome_keyring.environ))[0] == ["aaa"]
    assert gnome_keyring.count("xapi") == 1
