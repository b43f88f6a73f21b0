"""`xapi profile use`, `unset` and `remove`, and files that cannot be read or written."""

import json
import shlex

import pytest

from tests.commands.profiles import WRITTEN, config_of, write_config
from tests.support.program import Outcome, Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox


def test_use_and_remove_preserve_the_rest_of_the_file(xapi: Xapi) -> None:
    write_config(xapi)

    assert xapi("profile", "use", "home") == Outcome(0, "", "xapi: the default profile is now home\n")
    assert config_of(xapi) == WRITTEN.replace('"work"', '"home"', 1)
    assert xapi("profile", "remove", "home") == Outcome(0, "", "xapi: removed profile home\n")
    assert config_of(xapi) == WRITTEN.partition("[profiles.home]")[0].replace('default_profile = "work"\n', "")
    assert xapi("profile", "use", "default").code == 0


def test_unset_removes_one_key_and_preserves_the_rest_of_the_file(xapi: Xapi) -> None:
    write_config(xapi)

    assert xapi("profile", "unset", "username").err.endswith("xapi: removed username from profile work\n")
    assert config_of(xapi) == WRITTEN.replace('username = "me@example.com"\n', "")
    assert xapi("profile", "unset", "timeout", env={"XAPI_PROFILE": "home"}).code == 0
    assert config_of(xapi).endswith("[profiles.home]\n")
    assert json.loads(xapi("profile", "show", "home", "--json").out) == {"name": "home"}


def test_use_warns_if_the_environment_selects_another_profile(xapi: Xapi) -> None:
    write_config(xapi)
    note = "xapi: the default profile is now home\n"

    assert xapi("profile", "use", "home", env={"XAPI_PROFILE": "home"}).err == note
    assert xapi("profile", "use", "home", env={"XAPI_PROFILE": "work"}).err == (
        f"xapi: warning: XAPI_PROFILE still selects work; unset it\n{note}"
    )


def test_remove_names_the_command_that_deletes_the_token_which_remains(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", "-p", "play", env=sandbox.settings)
    command = f"xapi logout --base-url {sandbox.base_url} --username {MASTER.email}"

    assert xapi("profile", "remove", "play").err == (
        f"xapi: removed profile play\nxapi: its token, if there is one, remains stored; to delete it, run `{command}`\n"
    )

    logout = xapi(*shlex.split(command)[1:], env={"XAPI_STORAGE": "none"})  # whatever the settings are now
    assert logout == Outcome(0, "", f"xapi: logged out of {MASTER.email} at {sandbox.base_url}\n")


@pytest.mark.parametrize("verb", [("use",), ("show",), ("remove",), ("unset", "timeout", "-p")])
def test_a_profile_that_does_not_exist_exits_with_2_and_lists_the_existing_ones(
    xapi: Xapi, verb: tuple[str, ...]
) -> None:
    error, create = "xapi: error: profile 'nowhere' does not exist", "create it with `xapi login --profile nowhere`"
    assert xapi("profile", *verb, "nowhere") == Outcome(2, "", f"{error}; {create}\n")

    write_config(xapi)
    others = "select another profile (work, home)"
    assert xapi("profile", *verb, "nowhere") == Outcome(2, "", f"{error}; {others}, or {create}\n")
    assert config_of(xapi) == WRITTEN


def test_every_command_reports_an_invalid_file_and_leaves_it_unchanged(xapi: Xapi) -> None:
    write_config(xapi, "[profiles.work]\nbaseurl = 'x'\n")

    verbs = [("list",), ("show",), ("use", "work"), ("set", "timeout", "1"), ("unset", "timeout"), ("remove", "work")]
    for args in verbs:
        outcome = xapi("profile", *args)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"xapi: error: {xapi.config}/config.toml: unknown key profiles.work.baseurl; ")
    assert config_of(xapi) == "[profiles.work]\nbaseurl = 'x'\n"
    assert [xapi(word).code for word in ("--version", "--help")] == [0, 0]
    assert xapi("login", "--help").code == 0


def test_profiles_that_are_set_concurrently_are_all_stored(xapi: Xapi) -> None:
    running = [xapi.start("profile", "set", "timeout", "1", "-p", f"p{number}") for number in range(12)]
    for process in running:
        process.communicate()

    names = [each["name"] for each in json.loads(xapi("profile", "list", "--json").out)]
    assert sorted(names) == sorted(f"p{number}" for number in range(12))


def test_a_config_file_that_cannot_be_written_exits_with_14(xapi: Xapi) -> None:
    xapi.config.symlink_to("/proc/self")

    outcome = xapi("profile", "set", "timeout", "1")

    assert (outcome.code, outcome.err.count("\n")) == (14, 1)
