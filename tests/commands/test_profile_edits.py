"""`xapi profile use`, `unset` and `remove`, and files that cannot be read or written."""

import json
import shlex

import pytest

from tests.commands.profiles import WRITTEN, config_of, write_config
from tests.support.program import Environ, Outcome, Xapi
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
    assert xapi("profile", "unset", "timeout", "-p", "home").code == 0
    assert config_of(xapi).endswith("[profiles.home]\n")
    assert json.loads(xapi("profile", "show", "home", "--json").out) == {"name": "home"}


SINGLE = [
    ("profiles.default.timeout = 3\n", "profiles.default = {}\n", ""),
    ("profiles.default.timeout = 3\nprofiles.b.timeout = 4\n", "profiles.default = {}\nprofiles.b.timeout = 4\n", None),
    ("[profiles]\ndefault.timeout = 3\n", "[profiles]\ndefault = {}\n", ""),
    ("# one\nprofiles.default = {timeout = 3}\n", "# one\nprofiles.default = {}\n", "# one\n"),
    ("[profiles.default]\ntimeout = 3\n", "[profiles.default]\n", ""),
    ("profiles = {default = {timeout = 3}}\n", "profiles = {default = {}}\n", ""),
]


@pytest.mark.parametrize(("text", "unset", "removed"), SINGLE)
def test_the_only_setting_and_the_only_profile_are_removed_in_any_form(
    xapi: Xapi, text: str, unset: str, removed: str | None
) -> None:
    write_config(xapi, text)
    assert xapi("profile", "unset", "timeout") == Outcome(0, "", "xapi: removed timeout from profile default\n")
    assert config_of(xapi) == unset

    for written in (text, unset):
        write_config(xapi, written)
        assert xapi("profile", "remove", "default") == Outcome(0, "", "xapi: removed profile default\n")
        assert config_of(xapi) == ("profiles.b.timeout = 4\n" if removed is None else removed)


@pytest.mark.parametrize(("args", "name"), [((), "work"), (("-p", "home"), "home"), (("-p", "default"), "default")])
def test_unset_of_a_key_that_is_not_set_changes_nothing(xapi: Xapi, args: tuple[str, ...], name: str) -> None:
    write_config(xapi)

    assert xapi("profile", "unset", "storage", *args) == Outcome(0, "", f"xapi: storage is not set in profile {name}\n")
    assert config_of(xapi) == WRITTEN


def test_unset_of_the_base_url_warns_if_the_password_command_is_no_longer_bound_to_it(xapi: Xapi) -> None:
    write_config(xapi)

    assert xapi("profile", "unset", "base_url") == Outcome(
        0,
        "",
        "xapi: warning: the password_command of profile work now runs for any base URL\n"
        "xapi: removed base_url from profile work\n",
    )


def test_use_warns_if_the_environment_selects_another_profile(xapi: Xapi) -> None:
    write_config(xapi)
    note = "xapi: the default profile is now home\n"

    assert xapi("profile", "use", "home", env={"XAPI_PROFILE": "home"}).err == note
    assert xapi("profile", "use", "home", env={"XAPI_PROFILE": "work"}).err == (
        f"xapi: warning: XAPI_PROFILE still selects work; unset it\n{note}"
    )


def test_unset_of_an_unknown_key_exits_with_2(xapi: Xapi) -> None:
    write_config(xapi)

    outcome = xapi("profile", "unset", "timout")
    assert (outcome.code, outcome.err.partition("?")[0]) == (
        2,
        "xapi: error: unknown setting 'timout'; did you mean timeout",
    )
    assert config_of(xapi) == WRITTEN


# The comments above a header are about its profile, although the table before continues up to the header.
COMMENTED = """# first
[profiles.a]
timeout = 1

# second: ask before changing
# it
[profiles.b]
timeout = 2
# end
"""


@pytest.mark.parametrize(
    ("args", "old", "new"),
    [
        (("set", "retry", "3", "-p", "a"), "timeout = 1\n", "timeout = 1\nretry = 3\n"),
        (("set", "retry", "3", "-p", "b"), "timeout = 2\n", "timeout = 2\nretry = 3\n"),
        (("remove", "a"), "[profiles.a]\ntimeout = 1\n", ""),
        (("remove", "b"), "[profiles.b]\ntimeout = 2\n# end\n", ""),
    ],
)
def test_the_comments_of_another_profile_stay_where_they_are(
    xapi: Xapi, args: tuple[str, ...], old: str, new: str
) -> None:
    write_config(xapi, COMMENTED)

    assert xapi("profile", *args).code == 0
    assert config_of(xapi) == COMMENTED.replace(old, new)


def test_a_profile_before_dotted_keys_is_removed(xapi: Xapi) -> None:
    write_config(xapi, "[profiles.a]\nretry = 3\n\n# others\n[profiles]\nb.timeout = 1\nb.retry = 2\n")

    assert xapi("profile", "remove", "a").code == 0
    assert config_of(xapi).endswith("[profiles]\nb.timeout = 1\nb.retry = 2\n")


def test_a_login_adds_settings_below_those_of_its_profile(xapi: Xapi, sandbox: Sandbox) -> None:
    write_config(xapi, COMMENTED)

    assert xapi("login", "-p", "a", env=sandbox.settings).code == 0
    assert config_of(xapi).startswith("# first\n[profiles.a]\ntimeout = 1\nbase_url = ")
    assert config_of(xapi).endswith(COMMENTED.partition("timeout = 1\n")[2])


@pytest.mark.parametrize(
    "args", [("set", "username", "you"), ("set", "base_url", "b.test"), ("unset", "username"), ("unset", "base_url")]
)
def test_another_account_of_a_profile_leaves_a_token_whose_deletion_is_explained(
    xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...]
) -> None:
    for profile in ("play", "twin"):
        xapi("login", "-p", profile, "--storage", "file", env=sandbox.settings)
    remains = f"; to delete it, run `xapi logout --base-url {sandbox.base_url} --username {MASTER.email}`\n"

    first, second = (xapi("profile", *args, "-p", profile).err for profile in ("twin", "play"))

    assert "remains" not in first
    assert f"the token of {MASTER.email} at {sandbox.base_url} remains in the file store{remains}" in second
    assert xapi("profile", *args, "-p", "play").err.count("\n") == 1


@pytest.mark.parametrize("storage", ["file", "keyring"])
def test_remove_names_the_command_that_deletes_the_token_which_remains(
    xapi: Xapi, sandbox: Sandbox, storage: str
) -> None:
    env: Environ = {**xapi.fake_keyring(), "XAPI_STORAGE": storage}
    xapi("login", "-p", "play", env={**sandbox.settings, **env})
    place = {"file": "the file store", "keyring": "the keyring"}[storage]
    command = f"xapi logout --base-url {sandbox.base_url} --username {MASTER.email}"

    assert xapi("profile", "remove", "play", env=env) == Outcome(
        0,
        "",
        "xapi: removed profile play\n"
        f"xapi: the token of {MASTER.email} at {sandbox.base_url} remains in {place}; to delete it, run `{command}`\n",
    )

    account = f"{MASTER.email} at {sandbox.base_url}"
    logout = xapi(*shlex.split(command)[1:], env={**env, "XAPI_STORAGE": "none"})  # whatever the settings are now
    assert logout == Outcome(0, "", f"xapi: logged out of {account}\n")


def test_remove_is_silent_about_a_token_that_another_profile_uses_or_that_was_deleted(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    for name in ("one", "two"):
        xapi("login", "-p", name, env=sandbox.settings)

    assert xapi("profile", "remove", "one") == Outcome(0, "", "xapi: removed profile one\n")
    assert xapi("logout", "-p", "two").code == 0
    assert xapi("profile", "remove", "two") == Outcome(0, "", "xapi: removed profile two\n")


def test_remove_warns_if_a_variable_selects_the_profile(xapi: Xapi) -> None:
    write_config(xapi)

    assert xapi("profile", "remove", "home", env={"XAPI_PROFILE": "home"}) == Outcome(
        0, "", "xapi: warning: XAPI_PROFILE still selects home; unset it\nxapi: removed profile home\n"
    )


@pytest.mark.parametrize(
    ("verb", "otherwise"),
    [
        (("use",), ", or create it with `xapi login --profile nowhere`"),
        (("show",), ", or create it with `xapi login --profile nowhere`"),
        (("remove",), ""),
        (("unset", "timeout", "-p"), ""),
    ],
)
def test_a_profile_that_does_not_exist_exits_with_2_and_lists_the_existing_ones(
    xapi: Xapi, verb: tuple[str, ...], otherwise: str
) -> None:
    error = "xapi: error: profile 'nowhere' does not exist"
    assert xapi("profile", *verb, "nowhere") == Outcome(2, "", f"{error}{otherwise.replace(', or', ';')}\n")

    write_config(xapi)
    assert xapi("profile", *verb, "nowhere") == Outcome(
        2, "", f"{error}; select another profile (work, home){otherwise}\n"
    )
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
        process.communicate(timeout=60)

    names = [each["name"] for each in json.loads(xapi("profile", "list", "--json").out)]
    assert sorted(names) == sorted(f"p{number}" for number in range(12))


def test_a_config_file_that_cannot_be_written_exits_with_14(xapi: Xapi) -> None:
    xapi.config.symlink_to("/proc/self")

    outcome = xapi("profile", "set", "timeout", "1")

    assert (outcome.code, outcome.err.count("\n")) == (14, 1)


def test_quiet_omits_the_notes_of_changes(xapi: Xapi) -> None:
    write_config(xapi)

    changes = [("use", "home"), ("set", "timeout", "1"), ("unset", "timeout"), ("unset", "timeout")]
    for args in (*changes, ("remove", "home")):
        assert xapi("profile", *args, "--quiet") == Outcome(0, "", ""), args
