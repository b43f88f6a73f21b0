"""The rules of Windows that are text only: places of programs, command lines, reserved names, retries."""

from typing import TYPE_CHECKING

import pytest

from xapi_cli.system import windows

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = r"C:\tools;.;bin;\noddrive;;D:\other"


def test_a_program_is_searched_for_in_the_absolute_directories_of_path_only() -> None:
    found = list(windows.program_places("getpw", {"PATH": PATH, "PATHEXT": ".EXE;.CMD"}))

    assert found == [rf"{place}\getpw{end}" for place in (r"C:\tools", r"D:\other") for end in (".EXE", ".CMD")]


def test_a_name_with_an_extension_of_pathext_is_tried_as_it_is_first() -> None:
    environ = {"PATH": r"C:\tools", "PATHEXT": ".EXE;.CMD"}

    assert next(windows.program_places("getpw.cmd", environ)) == r"C:\tools\getpw.cmd"
    assert next(windows.program_places("getpw.py", environ)) == r"C:\tools\getpw.py.EXE"


def test_without_pathext_there_are_default_extensions() -> None:
    found = list(windows.program_places("getpw", {"PATH": '"C:\\with space"'}))

    assert found == [rf"C:\with space\getpw{end}" for end in (".COM", ".EXE", ".BAT", ".CMD")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"C:\users\me\getpw.exe --user me", [r"C:\users\me\getpw.exe", "--user", "me"]),
        (r'"C:\Program Files\getpw.exe" "a b"', [r"C:\Program Files\getpw.exe", "a b"]),
        (r"\\server\share\getpw.exe", [r"\\server\share\getpw.exe"]),
        (r"a\\b c\\", [r"a\\b", r"c\\"]),
        (r'a "b\\" c', ["a", "b\\", "c"]),
        (r'a \"b\" "c\"d"', ["a", '"b"', 'c"d']),
        (r'a "b""c" d', ["a", 'b"c', "d"]),
        ('a "" b', ["a", "", "b"]),
        ("  a\t b ", ["a", "b"]),
        ("", []),
        ("a 'b c'", ["a", "'b", "c'"]),
    ],
)
def test_a_command_is_split_as_programs_of_windows_split_it(text: str, expected: list[str]) -> None:
    assert windows.split_command(text) == expected


@pytest.mark.parametrize("text", ['a "b', r'a "b\"'])
def test_an_unclosed_quote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="No closing quotation"):
        windows.split_command(text)


def test_a_program_gets_its_arguments_from_subprocess() -> None:
    assert windows.command_line(["C:\\a.exe", '"%PATH%"']) == ["C:\\a.exe", '"%PATH%"']


@pytest.mark.parametrize("name", ["C:\\a.cmd", "C:\\a.BAT", "C:\\a.cmd. "])
def test_all_arguments_of_a_batch_file_are_quoted(name: str) -> None:
    assert windows.command_line([name, "a & calc", "b|c", "d\\"]) == f'"{name}" "a & calc" "b|c" "d\\\\"'


@pytest.mark.parametrize("argument", ['a" & calc', "%PATH%", "a\nb", "a\rb"])
def test_an_argument_that_cmd_would_interpret_is_refused(argument: str) -> None:
    with pytest.raises(OSError, match="a batch file cannot get"):
        windows.command_line(["C:\\a.cmd", argument])


@pytest.mark.parametrize(
    "name", ["con", "C:\\a\\AUX", "d/com1.txt", "LPT9", "prn.tar.gz", "aux ", "con:x", "com\u00b2"]
)
def test_the_names_of_devices_are_reserved(name: str) -> None:
    assert windows.is_reserved(name)


@pytest.mark.parametrize("name", ["NUL", "console", "com10", "com", "a.con", "auxiliary.txt", "con\\a"])
def test_other_names_are_not_reserved(name: str) -> None:
    assert not windows.is_reserved(name)


def test_an_action_is_repeated_while_another_process_uses_the_file() -> None:
    results: Iterator[PermissionError | str] = iter([PermissionError(), PermissionError(), "done"])

    def action() -> str:
        result = next(results)
        if isinstance(result, PermissionError):
            raise result
        return result

    assert windows.retried(action) == "done"


def test_missing_permissions_are_reported_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_RETRY_TIMEOUT", 0)

    def action() -> None:
        raise PermissionError("denied")

    with pytest.raises(PermissionError, match="denied"):
        windows.retried(action)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("C:\\" + "a" * 200, "C:\\" + "a" * 200),
        ("C:\\" + "a" * 300, "\\\\?\\C:\\" + "a" * 300),
        ("\\\\server\\share\\" + "a" * 300, "\\\\?\\UNC\\server\\share\\" + "a" * 300),
        ("\\\\?\\C:\\" + "a" * 300, "\\\\?\\C:\\" + "a" * 300),
    ],
    ids=["short", "long", "long UNC", "extended already"],
)
def test_a_long_path_gets_the_form_without_a_limit(path: str, expected: str) -> None:
    assert windows.extended(path) == expected
