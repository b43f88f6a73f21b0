"""The config file: read strictly, and edited without losing comments and order."""

import os
import stat
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tomlkit import TOMLDocument

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.settings import config_file
from xapi_cli.settings.config_file import Config

Document = MutableMapping[str, Any]
Change = Callable[[Document], Document | None]

WRITTEN = """\
# mine
default_profile = "work"  # on weekdays

[profiles.work]
username = 'me@example.com'   # quoted my way
base_url = "https://api.test"
timeout = 2.5

# at home
[profiles.home]
password_command = [
    "pass",  # the program
    "show",
]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def _set(name: str, **values: object) -> Callable[[Document], Document]:
    def change(document: Document) -> Document:
        for key, value in values.items():
            document = config_file.with_profile(document, name)
            document["profiles"][name][key] = value
        return document

    return change


def test_the_contents_of_a_file_are_read(path: Path) -> None:
    path.write_text(WRITTEN)

    assert config_file.load(path) == Config(
        "work",
        {
            "work": {"username": "me@example.com", "base_url": "https://api.test", "timeout": 2.5},
            "home": {"password_command": ["pass", "show"]},
        },
    )


@pytest.mark.parametrize("missing", ["config.toml", "missing/config.toml", "file/config.toml"])
def test_a_missing_file_is_equivalent_to_an_empty_one(tmp_path: Path, missing: str) -> None:
    (tmp_path / "file").touch()

    assert config_file.load(tmp_path / missing) == Config()


@pytest.mark.parametrize(
    "data", [b"", b"\n# only a comment\n", b"\xef\xbb\xbf", b'default_profile = ""', b"[profiles]", b"profiles = {}"]
)
def test_an_empty_file_sets_nothing(path: Path, data: bytes) -> None:
    path.write_bytes(data)

    assert config_file.load(path) == Config()


@pytest.mark.parametrize(
    "data",
    [
        b'\xef\xbb\xbf[profiles.a]\r\nusername = "me"\r\n',
        b'profiles.a.username = "me"',
        b'profiles = {a = {username = "me"}}',
        b'profiles.a = {username = "me"}',
        b'[profiles]\na.username = "me"',
        b'[profiles."a"]\n"username" = """me"""',
    ],
)
def test_all_notations_of_toml_are_equivalent(path: Path, data: bytes) -> None:
    path.write_bytes(data)

    assert config_file.load(path) == Config(None, {"a": {"username": "me"}})


INVALID: dict[str, tuple[bytes, str]] = {
    "not TOML": (b"hello", "is not valid TOML: "),
    "the line is named": (b"\n\nx = = 1", "line 3"),
    "an unclosed string": (b'default_profile = "a', "is not valid TOML: "),
    "an unclosed table": (b"[profiles.a", "is not valid TOML: "),
    "a duplicate key": (b'default_profile = "a"\ndefault_profile = "b"', "is not valid TOML: "),
    "a duplicate table": (b"[profiles.a]\n[profiles.a]\n", "is not valid TOML: "),
    "an escape sequence": (b'x = "\x1b[2J"', "is not valid TOML: "),
    "NUL": (b"\0", "is not valid TOML: "),
    "JSON": (b'{"profiles": {}}', "is not valid TOML: "),
    "YAML": (b"profiles:\n  a:\n", "is not valid TOML: "),
    "merge conflict markers": (b"<<<<<<< HEAD\n", "is not valid TOML: "),
    "CR without LF": (b'default_profile = "a"\r[profiles.a]', "is not valid TOML: "),
    "an integer of 5,000 digits": (
        b"[profiles.a]\ntimeout = " + b"9" * 5_000,
        "contains a number with too many digits",
    ),
    "deep nesting": (b"x = " + b"[" * 10_000, "is nested too deeply"),
    "latin-1": ("# ü".encode("latin-1"), "is not valid UTF-8 at byte 2"),
    "UTF-16": ("x = 1".encode("utf-16"), "is not valid UTF-8 at byte 0"),
    "too large": (b"#" * (1024 * 1024 + 1), "is larger than 1 MiB"),
    "an unknown key": (b"color = 1", ": unknown key color"),
    "a key of a profile outside of one": (b"timeout = 1", ": unknown key timeout"),
    "a profile outside of profiles": (b"[default]", ": unknown key default"),
    "an unknown table": (b"[profile.a]", ": unknown key profile"),
    "an unknown key of a profile": (b"[profiles.a]\npassword = 'CANARY'", ": unknown key profiles.a.password"),
    "a misspelled key": (b"[profiles.a]\nbase-url = 'x'", ": unknown key profiles.a.base-url"),
    "a key with a control sequence": (b'"\\u001b[2J" = 1', r": unknown key \x1b[2J"),
    "default_profile a number": (b"default_profile = 1", ": default_profile must be a string"),
    "default_profile a table": (b"[default_profile]", ": default_profile must be a string"),
    "profiles is a string": (b'profiles = "a"', ": profiles must be tables, [profiles.NAME]"),
    "profiles is a list": (b"[[profiles]]", ": profiles must be tables, [profiles.NAME]"),
    "a profile is a string": (b'[profiles]\na = "b"', ": profiles.a must be a table"),
    "base_url a number": (b"[profiles.a]\nbase_url = 1", ": profiles.a.base_url must be a string"),
    "username is a boolean": (b"[profiles.a]\nusername = true", ": profiles.a.username must be a string"),
    "storage is a list": (b"[profiles.a]\nstorage = ['file']", ": profiles.a.storage must be a string"),
    "timeout is an array": (
        b"[profiles.a]\ntimeout = [1]",
        ": profiles.a.timeout must be a number of seconds or a duration such as '90s'",
    ),
    "timeout is a boolean": (b"[profiles.a]\ntimeout = true", ": profiles.a.timeout must be a number"),
    "max_time a date": (b"[profiles.a]\nmax_time = 2026-01-01", ": profiles.a.max_time must be a number"),
    "a command in one string": (
        b"[profiles.a]\npassword_command = 'pass show'",
        ": profiles.a.password_command must be an array of strings",
    ),
    "an empty command": (
        b"[profiles.a]\npassword_command = []",
        ": profiles.a.password_command must be an array of strings that begins with a program, such as ['pass', 'show'",
    ),
    "a command without a program": (
        b"[profiles.a]\npassword_command = ['', 'show']",
        ": profiles.a.password_command must be an array of strings that begins with a program, such as ['pass', 'show'",
    ),
    "a command with a number": (
        b"[profiles.a]\npassword_command = ['a', 1]",
        ": profiles.a.password_command must be an array of strings",
    ),
}


@pytest.mark.parametrize("data, message", INVALID.values(), ids=INVALID)
def test_an_invalid_file_is_reported_with_the_place_and_never_overwritten(
    path: Path, data: bytes, message: str
) -> None:
    path.write_bytes(data)

    for read in (lambda: config_file.load(path), lambda: config_file.edit(path, _set("a", username="me"))):
        with pytest.raises(UsageError) as caught:
            read()
        assert caught.value.message.startswith(f"{path}")
        assert message in caught.value.message
        assert "CANARY" not in str(caught.value)
        assert str(caught.value).isprintable()
    assert path.read_bytes() == data
    assert os.listdir(path.parent) == ["config.toml"]


@pytest.mark.parametrize(
    "data, hint",
    [
        (b"timeout = 1", "write it below the header of a profile, such as [profiles.default]"),
        (b"[default]", "the header of a profile is [profiles.default]"),
        (b"[profile.a]", "did you mean profiles?"),
        (b"default-profile = 'a'", "did you mean default_profile?"),
    ],
)
def test_the_hint_says_where_a_key_belongs(path: Path, data: bytes, hint: str) -> None:
    path.write_bytes(data)

    with pytest.raises(UsageError) as caught:
        config_file.load(path)
    assert caught.value.hint == hint


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    "make, message",
    [
        (Path.mkdir, "cannot be read: Is a directory"),
        (_fifo, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_anything_but_a_regular_file_is_rejected_without_blocking(
    path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(path)

    for read in (lambda: config_file.load(path), lambda: config_file.edit(path, _set("a", username="me"))):
        with pytest.raises(UsageError) as caught:
            read()
        assert caught.value.message == f"{path} {message}"


def test_an_edit_preserves_the_line_ends_of_windows(path: Path) -> None:
    path.write_bytes(b'# mine\r\n[profiles.a]\r\nusername = "me"\r\n')
    config_file.edit(path, _set("a", username="you"))
    assert path.read_bytes() == b'# mine\r\n[profiles.a]\r\nusername = "you"\r\n'


def test_an_edit_changes_one_value_and_preserves_comments_order_and_quotes(path: Path) -> None:
    path.write_text(WRITTEN)

    config_file.edit(path, _set("work", timeout=5))

    assert path.read_text() == WRITTEN.replace("2.5", "5")


def test_a_new_profile_is_added_after_the_others(path: Path) -> None:
    path.write_text(WRITTEN)

    config_file.edit(path, _set("new", base_url="https://new.test", username="me"))

    added = '[profiles.new]\nbase_url = "https://new.test"\nusername = "me"\n'
    assert path.read_text() in (WRITTEN + added, WRITTEN + "\n" + added)


def test_a_top_level_key_is_added_above_the_tables(path: Path) -> None:
    path.write_text('# mine\n[profiles.a]\nusername = "me"\n')

    def change(document: Document) -> None:
        document["default_profile"] = "a"

    config_file.edit(path, change)

    assert config_file.load(path) == Config("a", {"a": {"username": "me"}})
    assert path.read_text().startswith("# mine\n")


@pytest.mark.parametrize(
    "data",
    [
        "",
        "[profiles]\n",
        "[profiles.a]\n",
        "profiles = {}\n",
        "profiles = {a = {username = 'me'}}\n",
        "profiles.a.username = 'me'\n",
        "profiles.a = {username = 'me'}\n",
        "[profiles]\na.username = 'me'\n",
        "[profiles]\na = {username = 'me'}\n",
        "[profiles.a]\nusername = 'me'",
        "[profiles.b]\n[profiles.a]\n\n[profiles.c]\nusername = 'x'\n",
        "default_profile = 'a'",
    ],
)
@pytest.mark.parametrize("name", ["a", "new", "with.dot", "müller"])
def test_a_value_can_be_set_in_every_notation_of_toml(path: Path, data: str, name: str) -> None:
    path.write_text(data)
    before = config_file.load(path)
    values: dict[str, Any] = {"base_url": "https://new.test", "password_command": ["pass", "it's"]}

    config_file.edit(path, _set(name, **values))

    old = {key: dict(profile) for key, profile in before.profiles.items()}
    assert config_file.load(path) == Config(before.default_profile, old | {name: old.get(name, {}) | values})


COMMENTS = (b"# one", b"# two", b"# end")
FORMS = {
    "dotted": 'profiles.default.timeout = 1 # one\n# two\nprofiles.default.username = "u"\nprofiles.work.timeout = 3\n',
    "interleaved": 'profiles.work.timeout = 3\nprofiles.default.username = "a"\nprofiles.work.storage = "file"\n',
    "dotted, with a default": '# one\ndefault_profile = "work"\n\nprofiles.b.timeout = 1\nprofiles.work.timeout = 3\n',
    "dotted, apart": '# one\n\nprofiles.work.timeout = 3\n\n# two\n\nprofiles.work.username = "u"\n# end\n',
    "dotted, with spaces": 'profiles . default . base_url = "a"\nprofiles .work. timeout = 3\n',
    "quoted": "profiles.\"default\".'base_url' = 'a'\n\"profiles\".work.timeout=3\n",
    "quoted headers": '["profiles"."default"]\nbase_url = "a"\n\n[profiles.\'work\']\ntimeout = 3\n',
    "dotted in a table": '[profiles]\ndefault.base_url = "a"\nwork.timeout = 3\n',
    "dotted beside a table": '[profiles]\ndefault.base_url = "a"\n\n[profiles.work]\ntimeout = 3\n',
    "dotted after a table": '[profiles.work]\ntimeout = 3\n[profiles]\ndefault.base_url = "a"\n',
    "inline": 'profiles.work = {timeout = 3}\nprofiles.default = { base_url = "a", username = "u" } # one\n',
    "inline, empty": "profiles.default = {}\nprofiles.work = {}\n",
    "inline in a table": '[profiles]\ndefault = {base_url = "a"}\nwork = {timeout = 3}\n',
    "all inline": 'profiles = {default = {base_url = "a"}, work = {timeout = 3}}\n',
    "all inline, dotted": 'profiles = {default.base_url = "a", work.timeout = 3, default.username="u"}\n',
    "several lines": 'profiles.default.password_command = [\n "a", # one\n "b",\n]\nprofiles.work.timeout = 3\n',
    "CRLF": 'profiles.default.base_url = "a" # one\r\nprofiles.work.timeout = 3\r\n',
    "no newline": "profiles.work.timeout = 3",
}


def _changes(before: Config) -> Iterator[tuple[Change, Config]]:
    """Yield changes of a file with *before*, and what it then contains."""
    default, profiles = before.default_profile, {name: dict(profile) for name, profile in before.profiles.items()}
    for name in ("default", "work", "new", "with.dot"):
        for key, value in (("username", "zoe"), ("timeout", 9)):
            yield (
                _set(name, **{key: value}),
                Config(default, {**profiles, name: {**profiles.get(name, {}), key: value}}),
            )
        yield partial(_use, name=name), Config(name, profiles)
    for name, profile in profiles.items():
        for key in profile:
            rest = {each: value for each, value in profile.items() if each != key}
            removal = partial(config_file.remove_setting, name=name, key=key)
            yield removal, Config(default, {**profiles, name: rest})
        others = {each: settings for each, settings in profiles.items() if each != name}
        yield partial(config_file.remove_profile, name=name), Config(None if default == name else default, others)


def _use(document: Document, name: str) -> None:
    document["default_profile"] = name


@pytest.mark.parametrize("form", FORMS)
def test_each_change_is_possible_in_each_form_and_changes_nothing_else(path: Path, form: str) -> None:
    data = FORMS[form].encode()
    path.write_bytes(data)
    for change, expected in _changes(config_file.load(path)):
        path.write_bytes(data)
        config_file.edit(path, change)

        assert config_file.load(path) == expected
        if not (
            isinstance(change, partial) and change.func in (config_file.remove_setting, config_file.remove_profile)
        ):
            assert all(comment in path.read_bytes() for comment in COMMENTS if comment in data)
        assert b"\r\n" in data or b"\r" not in path.read_bytes()


def test_an_edit_that_would_change_anything_else_is_refused(path: Path) -> None:
    path.write_text(WRITTEN)

    def change(document: Document) -> None:
        document["default_profile"] = "home"
        if isinstance(document, TOMLDocument):
            del document["profiles"]["home"]

    with pytest.raises(UsageError, match="has a form that xapi cannot edit; edit the file by hand"):
        config_file.edit(path, change)
    assert path.read_text() == WRITTEN


def test_an_edit_that_changes_nothing_does_not_touch_the_file(path: Path) -> None:
    path.write_text(WRITTEN)
    before = path.stat()

    config_file.edit(path, lambda document: None)

    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_directory_and_file_are_private_with_any_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "new" / "config.toml"
    before = os.umask(umask)
    try:
        config_file.edit(path, _set("a", username="me"))
    finally:
        os.umask(before)

    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]


def test_a_symbolic_link_to_a_file_in_another_directory_is_preserved(tmp_path: Path, path: Path) -> None:
    real = tmp_path / "dotfiles" / "xapi.toml"
    real.parent.mkdir()
    path.symlink_to(real)

    config_file.edit(path, _set("a", username="me"))

    assert path.is_symlink()
    assert config_file.load(real) == Config(None, {"a": {"username": "me"}})


def test_a_file_that_cannot_be_written_is_an_output_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "config.toml"

    with pytest.raises(OutputError) as caught:
        config_file.edit(path, _set("a", username="me"))

    assert str(caught.value) == (
        f"{path} cannot be written: Not a directory; check the directory, or set XAPI_CONFIG_DIR"
    )
