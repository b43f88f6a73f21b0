"""The config file: read strictly, and edited without losing comments, order or line ends."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings import config_file
from xapi_cli.settings.config_file import Config, Document, editing

Change = Callable[[Document], None]

WRITTEN = """\
# my settings
default_profile = "work"  # most of the time

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


def _set(name: str, key: str, value: object) -> Change:
    return lambda document: document.set(name, key, value)


def _edit(path: Path, change: Change) -> None:
    with editing(path) as document:
        change(document)


def test_the_contents_of_a_file_are_read(path: Path) -> None:
    path.write_text(WRITTEN)
    assert config_file.load(path) == Config(
        "work",
        {
            "work": {"username": "me@example.com", "base_url": "https://api.test", "timeout": 2.5},
            "home": {"password_command": ["pass", "show"]},
        },
    )


@pytest.mark.parametrize(
    "data", [None, b"", b"\n# a comment\n", b"\xef\xbb\xbf", b'default_profile = ""', b"[profiles]"]
)
def test_a_missing_or_an_empty_file_sets_nothing(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.write_bytes(data)
    assert config_file.load(path) == Config()
    _edit(path, _set("a", "username", "me"))
    assert config_file.load(path) == Config(None, {"a": {"username": "me"}})


INVALID = {
    "the line is named": (b"\n\nx = = 1", "line 3"),
    "an escape sequence": (b'x = "\x1b[2J"', "is not valid TOML: "),
    "an integer of 5,000 digits": (b"[profiles.a]\ntimeout = " + b"9" * 5_000, "is not valid TOML: "),
    "deep nesting": (b"x = " + b"[" * 10_000, "is not valid TOML: "),
    "latin-1": ("# ü".encode("latin-1"), "is not valid UTF-8 at byte 2"),
    "an unknown key": (b"color = 1", ": unknown key color; the keys are default_profile, profiles"),
    "a key of a profile outside of one": (b"timeout = 1", ": unknown key timeout; write it below the header of a"),
    "a profile outside of profiles": (b"[default]", ": unknown key default; the header of a profile is [profiles.def"),
    "an unknown table": (b"[profile.a]", ": unknown key profile; did you mean profiles?"),
    "an unknown key of a profile": (b"[profiles.a]\npassword = 'CANARY'", ": unknown key profiles.a.password"),
    "a misspelled key": (b"[profiles.a]\nbase-url = 'x'", ": unknown key profiles.a.base-url; did you mean base_url?"),
    "a key with a control sequence": (b'"\\u001b[2J" = 1', r": unknown key \x1b[2J"),
    "default_profile a number": (b"default_profile = 1", ": default_profile must be a string"),
    "profiles is a list": (b"[[profiles]]", ": profiles must be tables, [profiles.NAME]"),
    "a profile is a string": (b'[profiles]\na = "b"', ": profiles.a must be a table"),
    "base_url a number": (b"[profiles.a]\nbase_url = 1", ": profiles.a.base_url must be a string"),
    "timeout is a boolean": (b"[profiles.a]\ntimeout = true", ": profiles.a.timeout must be a number"),
    "a command in one string": (
        b"[profiles.a]\npassword_command = 'pass show'",
        ": profiles.a.password_command must be an array of strings that begins with a program",
    ),
    "headers in an array": (b"[profiles.a]\nheaders = ['X-A: b']", ": profiles.a.headers must be a table of strings"),
    "a command without a program": (
        b"[profiles.a]\npassword_command = ['', 'show']",
        ": profiles.a.password_command must be an array of strings that begins with a program",
    ),
}


@pytest.mark.parametrize("data, message", INVALID.values(), ids=INVALID)
def test_an_invalid_file_is_reported_with_the_place_and_never_overwritten(
    path: Path, data: bytes, message: str
) -> None:
    path.write_bytes(data)
    for read in (lambda: config_file.load(path), lambda: _edit(path, _set("a", "username", "me"))):
        with pytest.raises(UsageError) as caught:
            read()
        assert str(caught.value).startswith(f"{path}")
        assert message in str(caught.value)
        assert "CANARY" not in str(caught.value)
        assert str(caught.value).isprintable()
    assert (path.read_bytes(), os.listdir(path.parent)) == (data, ["config.toml"])


def test_a_directory_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        config_file.load(path)


EDITS: list[tuple[Change, dict[str, str]]] = [
    (_set("work", "timeout", 9), {"timeout = 2.5": "timeout = 9"}),
    (_set("work", "storage", "file"), {"timeout = 2.5\n": 'timeout = 2.5\nstorage = "file"\n'}),
    (_set("home", "headers", {"X-A": "b"}), {'    "show",\n]\n': '    "show",\n]\nheaders = {X-A = "b"}\n'}),
    (_set("new", "username", "ü"), {'    "show",\n]\n': '    "show",\n]\n\n[profiles.new]\nusername = "ü"\n'}),
    (lambda document: document.unset("work", "base_url"), {'base_url = "https://api.test"\n': ""}),
    (lambda document: document.use("home"), {'= "work"  #': '= "home"  #'}),
    (
        lambda document: document.remove("work"),
        {WRITTEN.split("\n", 1)[1].split("# at home", maxsplit=1)[0]: "\n\n"},
    ),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("number", range(len(EDITS)))
def test_an_edit_changes_only_what_it_is_about(path: Path, number: int, newline: str) -> None:
    change, changes = EDITS[number]
    expected = WRITTEN
    for before, after in changes.items():
        assert before in expected
        expected = expected.replace(before, after, 1)
    path.write_text(WRITTEN, newline=newline)
    path.chmod(0o640)
    _edit(path, change)
    assert path.read_bytes().decode() == expected.replace("\n", newline)
    assert path.stat().st_mode & 0o777 == 0o640


FORMS = {
    "dotted": 'profiles.default.base_url = "a"\nprofiles.work.timeout = 3\n',
    "interleaved": 'profiles.work.timeout = 3\n# two\nprofiles.default.base_url = "a"\nprofiles.work.username = "u"\n',
    "quoted headers": '["profiles"."default"]\nbase_url = "a"\n\n[profiles.\'work\']\ntimeout = 3\n',
    "dotted in a table": '[profiles]\ndefault.base_url = "a"\nwork.timeout = 3\n',
    "inline": 'profiles.work = {timeout = 3}\nprofiles.default = { base_url = "a", username = "u" } # one\n',
    "a table in a profile": '[profiles.work]\ntimeout = 3\n[profiles.work.headers]\nX-A = "b"\n'
    '[profiles.default]\nbase_url = "a"\n',
    "all inline": 'profiles = {default = {base_url = "a"}, work = {timeout = 3}}\n',
    "no newline": '[profiles.work]\ntimeout = 3\n[profiles.default]\nbase_url = "a"',
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_is_edited_correctly_or_refused(path: Path, form: str) -> None:
    """Forms that tomlkit cannot edit are left as they are; the usual ones, with headers, are not among them."""
    path.write_text(FORMS[form])
    before = {name: dict(profile) for name, profile in config_file.load(path).profiles.items()}
    changes: list[tuple[Change, dict[str, dict[str, object]]]] = [
        (_set("work", "timeout", 9), {**before, "work": {**before["work"], "timeout": 9}}),
        (_set("with.dot", "username", "z"), {**before, "with.dot": {"username": "z"}}),
        (
            lambda document: document.unset("work", "timeout"),
            {**before, "work": {key: value for key, value in before["work"].items() if key != "timeout"}},
        ),
        (lambda document: document.remove("work"), {"default": before["default"]}),
    ]
    for change, expected in changes:
        path.write_text(FORMS[form])
        try:
            _edit(path, change)
        except UsageError as error:
            assert form in ("dotted", "interleaved", "dotted in a table", "all inline")
            assert str(error) == f"{path} has a form that xapi cannot edit; edit the file by hand"
            assert path.read_text() == FORMS[form]
        else:
            assert config_file.load(path).profiles == expected


def test_a_value_that_is_not_utf_8_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="a value, or the current directory, is not valid UTF-8"):
        _edit(path, _set("a", "log", "/\udcff"))
    assert not path.exists()
