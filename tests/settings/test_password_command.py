"""The text of a password command: arguments, and syntax that only a shell understands."""

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings.password_command import shell_syntax, shell_syntax_warning, split, unexpanded


def test_the_text_is_split_as_in_a_posix_shell() -> None:
    assert split("pass show 'a b' c\\ d") == ["pass", "show", "a b", "c d"]


@pytest.mark.parametrize(
    "text, message",
    [("'open", "a quote is not closed"), ("", "the command is empty"), ("'' x", "the command is empty")],
)
def test_an_unclosed_quote_and_an_empty_command_are_rejected(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        split(text)

    assert caught.value.message == message


def test_a_warning_names_the_option_and_the_syntax() -> None:
    assert shell_syntax_warning("--password-command", "pass show a") is None
    assert shell_syntax_warning("--password-command", "pass show a | head -1") == (
        "--password-command: | is shell syntax, but the command runs without a shell;"
        " to use a shell, write sh -c 'COMMAND'"
    )


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("echo pw | tr a b", "|"),
        ("echo pw|tr a b", "|"),
        ("cat <file", "<"),
        ("cat file 2>/dev/null", ">"),
        ("cat ~/file", "~"),
        ("echo $PW", "$"),
        ('echo "${PW}"', "$"),
        ('echo "$(id)"', "$"),
        ("echo `id`", "`"),
        ("true && echo pw", "&&"),
        ("true || echo pw", "||"),
        ("true; echo pw", ";"),
        ("sleep 1 &", "&"),
        ("sh -c 'echo a' | cat", "|"),
        ("sh -c 'echo pw | tr a b'", None),
        ('/bin/bash -c "cat $HOME/pw"', None),
        ("echo 'a | b; $c' \\$d \\| e", None),
        ("~/bin/getpw show", None),
        ("get 'https://x.test/?a=1&b=2' https://x.test/?a=1&b=2", None),
        ("pass show a~b 5$", None),
    ],
)
def test_shell_syntax_is_found_in_a_password_command(command: str, found: str | None) -> None:
    assert shell_syntax(command) == found


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["cat", "~/password"], "~"),
        (["get", "-q", "~me/vault"], "~"),
        (["cat", "$HOME/password"], "$"),
        (["cat", "/home/${USER}/password"], "$"),
        (["cat", "`pwd`/password"], "`"),
        (["cat", "password", "|", "head"], "|"),
        (["get", "a", "&&", "get", "b"], "&&"),
        (["get", "2>errors"], None),
        (["get", ">errors"], ">"),
        (["get", "a;b", "price in $"], None),
        (["cat", "/home/me/password~"], None),
        (["~/bin/getpw", "api"], None),  # the path of the program is expanded when it is set
        (["/bin/sh", "-c", "~/bin/getpw"], None),
        (["bash", "-c", "cat $HOME/password"], None),
    ],
)
def test_what_only_a_shell_would_interpret_in_an_argument_is_found(command: list[str], found: str | None) -> None:
    assert unexpanded(command) == found
