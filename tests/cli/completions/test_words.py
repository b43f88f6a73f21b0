"""Words that complete in the installed shells, as a user triggers it: on a terminal, with the Tab key."""

import json

import pytest

from tests.cli.completions.shells import SHELLS, in_each_shell, shell_of
from tests.openapi.test_summary import openapi
from tests.support.program import PROGRAM, Xapi
from tests.tools.documents import COMPLETIONS, ROOT

pytestmark = pytest.mark.slow  # shells

CONFIG = """\
[profiles.staging]
base_url = "https://staging.example.com"

[profiles.production]
base_url = "https://api.example.com"
"""


@in_each_shell
def test_commands_flags_values_and_profiles_complete(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(CONFIG)

    with shell_of(xapi, shell) as complete:
        shown = [
            complete("xapi logo"),
            complete("xapi profile rem"),
            complete("xapi request --no-chec"),
            complete("xapi token show --format hea"),
            complete("xapi token status -p stag"),
            complete("xapi -p stag"),
            complete("xapi -p staging logo"),
            complete("xapi --profile=prod"),
            complete("xapi -p staging profile unset base_u"),
            complete("xapi -p staging exec xap"),
            complete("xapi profile use prod"),
            complete("xapi profile set max_t"),
            complete("xapi login --storage keyr"),
            complete("xapi token show --format=hea"),
            complete("xapi token status --profile=prod"),
            complete("xapi login --base-url http://localhost:8080 --storage=fi"),
        ]

    assert shown == [
        "<xapi><logout>",
        "<xapi><profile><remove>",
        "<xapi><request><--no-check-status>",
        "<xapi><token><show><--format><header>",
        "<xapi><token><status><-p><staging>",
        "<xapi><-p><staging>",
        "<xapi><-p><staging><logout>",
        "<xapi><--profile=production>",
        "<xapi><-p><staging><profile><unset><base_url>",
        "<xapi><-p><staging><exec><xapi>",
        "<xapi><profile><use><production>",
        "<xapi><profile><set><max_time>",
        "<xapi><login><--storage><keyring>",
        "<xapi><token><show><--format=header>",
        "<xapi><token><status><--profile=production>",
        "<xapi><login><--base-url><http://localhost:8080><--storage=file>",
    ]


@in_each_shell
def test_file_names_complete_for_an_option_that_takes_a_file(xapi: Xapi, shell: str) -> None:
    (xapi.home / "response.json").write_text("{}")

    with shell_of(xapi, shell) as complete:
        assert complete("xapi request /x-api/me -o resp") == "<xapi><request></x-api/me><-o><response.json>"
        assert complete("xapi request /x-api/me --output=resp") == "<xapi><request></x-api/me><--output=response.json>"


@in_each_shell
def test_topics_methods_and_values_of_settings_complete(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(CONFIG)
    (xapi.home / "PATCHES").touch()
    (xapi.home / "keyring.txt").touch()

    with shell_of(xapi, shell) as complete:
        shown = [
            complete("xapi help profile rem"),
            complete("xapi request PA"),
            complete("xapi request --form OPT"),
            complete("xapi profile set storage keyr"),
            complete("xapi profile set -p staging storage fil"),
            complete("xapi profile unset -p staging b"),
            complete("xapi profile remove prod"),
        ]

    assert shown == [
        "<xapi><help><profile><remove>",
        "<xapi><request><PATCH>",
        "<xapi><request><--form><OPTIONS>",
        "<xapi><profile><set><storage><keyring>",
        "<xapi><profile><set><-p><staging><storage><file>",
        "<xapi><profile><unset><-p><staging><base_url>",
        "<xapi><profile><remove><production>",
    ]


@in_each_shell
def test_file_names_complete_after_an_at_sign(xapi: Xapi, shell: str) -> None:
    (xapi.home / "upload.json").write_text("{}")
    (xapi.home / "two words.txt").write_text("")
    (xapi.home / "a=b@c:d.txt").write_text("")
    (xapi.home / "folder").mkdir()
    (xapi.home / "folder" / "inside.txt").write_text("")

    with shell_of(xapi, shell) as complete:
        shown = [
            complete("xapi request /a -d @upl"),
            complete("xapi request /a --data @upl"),
            complete("xapi request /a --data=@upl"),
            complete("xapi request /a file@upl"),
            complete("xapi request POST /a name=@upl"),
            complete("xapi request POST /a name:=@upl"),
            complete("xapi request /a file@two"),
            complete("xapi request /a -d @folder/ins"),
            complete("xapi request /a file@fold"),
            complete("xapi request /a file@a=b@c"),
            complete("xapi request /a 'file@two"),
            complete('xapi request /a file@"two'),
        ]

    assert shown == [
        "<xapi><request></a><-d><@upload.json>",
        "<xapi><request></a><--data><@upload.json>",
        "<xapi><request></a><--data=@upload.json>",
        "<xapi><request></a><file@upload.json>",
        "<xapi><request><POST></a><name=@upload.json>",
        "<xapi><request><POST></a><name:=@upload.json>",
        "<xapi><request></a><file@two words.txt>",
        "<xapi><request></a><-d><@folder/inside.txt>",
        f"<xapi><request></a><file@folder{'' if shell == 'zsh' else '/'}>",  # zsh removes it after a word
        "<xapi><request></a><file@a=b@c:d.txt>",
        "<xapi><request></a><file@two words.txt>",
        "<xapi><request></a><file@two words.txt>",
    ]


@pytest.mark.parametrize("breaks", ["=:@", "=", "@", ":"])
def test_in_bash_words_complete_whatever_characters_split_them(xapi: Xapi, breaks: str) -> None:
    (xapi.home / "upload.json").write_text("{}")
    prepare = f"COMP_WORDBREAKS=${{COMP_WORDBREAKS//[{breaks}]}}; source {ROOT / 'completions' / 'xapi.bash'}"

    with shell_of(xapi, "bash", prepare=prepare) as complete:
        shown = [
            complete("xapi login --storage=keyr"),
            complete("xapi request /a --data=@upl"),
            complete("xapi request /a name:=@upl"),
            complete("xapi request a:b c==d e:=1 --no-chec"),
        ]

    assert shown == [
        "<xapi><login><--storage=keyring>",
        "<xapi><request></a><--data=@upload.json>",
        "<xapi><request></a><name:=@upload.json>",
        "<xapi><request><a:b><c==d><e:=1><--no-check-status>",
    ]


@in_each_shell
def test_paths_and_items_of_the_api_description_complete(xapi: Xapi, shell: str) -> None:
    status = {"name": "status", "in": "query", "schema": {"enum": ["active", "archived", "a:b"]}}
    node = {"parameters": [status, {"name": "X-Trace", "in": "header"}]}
    document = openapi({"/users/{id}/keys": {"get": node}, "/users/{id}": {"get": {}}, "/projects": {"get": node}})
    (xapi.home / "api.json").write_text(json.dumps(document))
    assert xapi("api", "load", "api.json").code == 0

    with shell_of(xapi, shell) as complete:
        assert complete("xapi request /pro") == "<xapi><request></projects>"
        assert complete("xapi request GET /users/7/") == "<xapi><request><GET></users/7/keys>"
        assert complete("xapi request /projects sta") == "<xapi><request></projects><status==>"
        assert complete("xapi request /projects status==act") == "<xapi><request></projects><status==active>"
        assert complete("xapi request /projects status==a:") == "<xapi><request></projects><status==a:b>"


@in_each_shell
def test_a_file_name_with_shell_syntax_is_quoted(xapi: Xapi, shell: str) -> None:
    (xapi.home / "folder").mkdir()
    (xapi.home / "folder" / "$(touch pwned)`touch pwned`;'\"").touch()

    with shell_of(xapi, shell) as complete:
        shown = complete("xapi request /a -d @folder/")

    assert shown == "<xapi><request></a><-d><@folder/$(touch pwned)`touch pwned`;'\">"
    assert not (xapi.home / "pwned").exists()


@in_each_shell
def test_a_word_that_is_neither_a_file_nor_known_is_not_completed(xapi: Xapi, shell: str) -> None:
    (xapi.home / "me.txt").touch()

    with shell_of(xapi, shell) as complete:
        for line in (
            "xapi request me",
            "xapi request /a me",
            "xapi request /a -d me",
            "xapi request /a -H me",
            "xapi login -u me",
            "xapi profile set username me",
            "xapi request /a --jq me",
            "xapi batch --rate me",
            "xapi token show --min-ttl me",
            "xapi token status --check me",
            "xapi login -p me",
        ):
            assert complete(line) == "".join(f"<{word}>" for word in line.split())
        assert complete("xapi profile set ca_bundle me") == "<xapi><profile><set><ca_bundle><me.txt>"


@in_each_shell
def test_the_command_of_exec_completes(xapi: Xapi, shell: str) -> None:
    programs = xapi.home / "programs"
    programs.mkdir()
    (programs / "canary-program").write_text("#!/bin/sh\n")
    (programs / "canary-program").chmod(0o755)
    (xapi.home / "canary-file").touch()
    (xapi.home / "other-file").touch()

    with shell_of(xapi, shell, env={"PATH": f"{programs}:{xapi.environ['PATH']}"}) as complete:
        assert complete("xapi exec -- canary-p") == "<xapi><exec><--><canary-program>"
        assert complete("xapi exec canary-p") == "<xapi><exec><canary-program>"
        assert complete("xapi exec ./programs/canary-p") == "<xapi><exec><./programs/canary-program>"
        assert complete("xapi exec --min-ttl 1h -- canary-program other-") == (
            "<xapi><exec><--min-ttl><1h><--><canary-program><other-file>"
        )


def test_in_bash_the_arguments_of_the_command_of_exec_complete_as_those_of_the_command(xapi: Xapi) -> None:
    prepare = (
        f"source {ROOT / 'completions' / 'xapi.bash'}; "
        '_command_offset() { COMPREPLY=("${COMP_WORDS[$1]}-argument"); }'  # the name in bash-completion
    )
    with shell_of(xapi, "bash", prepare=prepare) as complete:
        assert (
            complete("xapi exec --min-ttl=1h -- echo x=1 a")
            == "<xapi><exec><--min-ttl=1h><--><echo><x=1><echo-argument>"
        )


@pytest.mark.parametrize(
    ("shell", "prepare"),
    [
        ("zsh", "_toy() { compadd first-argument }; compdef _toy toy"),
        ("fish", "complete --command toy --no-files --arguments first-argument"),
    ],
)
def test_the_arguments_of_the_command_of_exec_complete_as_those_of_the_command(
    xapi: Xapi, shell: str, prepare: str
) -> None:
    source = SHELLS[shell][1].format(script=ROOT / "completions" / COMPLETIONS[shell])

    with shell_of(xapi, shell, prepare=f"{source}; {prepare}") as complete:
        assert complete("xapi exec -- toy fir") == "<xapi><exec><--><toy><first-argument>"
        assert complete("xapi exec -- toy a fir") == "<xapi><exec><--><toy><a><first-argument>"


@in_each_shell
def test_the_program_completes_when_called_by_its_path(xapi: Xapi, shell: str) -> None:
    (xapi.home / "bin").mkdir()
    (xapi.home / "bin" / "xapi").symlink_to(PROGRAM)

    with shell_of(xapi, shell) as complete:
        assert complete("~/bin/xapi logo") == f"<{xapi.home}/bin/xapi><logout>"


@in_each_shell
def test_an_invalid_or_incomplete_line_does_not_break_completion(xapi: Xapi, shell: str) -> None:
    with shell_of(xapi, shell) as complete:
        assert complete("xapi request a:b c==d e:=1 --no-chec") == "<xapi><request><a:b><c==d><e:=1><--no-check-status>"
        assert complete("xapi nonsense --no-chec") == "<xapi><nonsense><--no-chec>"
        assert complete("xapi request 'two words' --no-chec") == "<xapi><request><two words><--no-check-status>"
