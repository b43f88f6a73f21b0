"""`xapi profile`: reads and edits the config file."""

import json
import re
import subprocess

import pytest

from tests.program import Outcome, Xapi, in_deleted_directory

WRITTEN = """\
default_profile = "work"
# mine
[profiles.work]
base_url = "https://api.test"
username = "me@example.com"
password_command = ["pass", "it's"]
[profiles.home]
timeout = 2.5
"""


def _written(xapi: Xapi, text: str = WRITTEN) -> None:
    xapi.config.mkdir(exist_ok=True)
    (xapi.config / "config.toml").write_text(text)


def _config(xapi: Xapi) -> str:
    return (xapi.config / "config.toml").read_text()


def test_list_marks_the_selected_profile_with_a_star(xapi: Xapi) -> None:
    _written(xapi)

    listed = "work\t*\tme@example.com\thttps://api.test\tnone\t-\nhome\t-\t-\t-\t-\t-\n"
    assert xapi("profile", "list") == Outcome(0, listed, "")
    starred = xapi("profile", "list", env={"XAPI_PROFILE": "home"}).out
    assert [line.split("\t")[1] for line in starred.splitlines()] == ["-", "*"]


def test_list_prints_json_for_scripts(xapi: Xapi) -> None:
    assert xapi("profile", "list", "--json") == Outcome(0, "[]\n", "")
    assert xapi("profile", "list") == Outcome(0, "", "xapi: no profiles; `xapi login` creates one\n")
    _written(xapi)

    assert json.loads(xapi("profile", "list", "--json").out) == [
        {
            "name": "work",
            "current": True,
            "base_url": "https://api.test",
            "username": "me@example.com",
            "password_command": ["pass", "it's"],
            "state": "none",
            "expires_at": None,
        },
        {"name": "home", "current": False, "timeout": 2.5, "state": None, "expires_at": None},
    ]


def test_the_default_profile_is_empty_before_it_is_created(xapi: Xapi) -> None:
    note = "xapi: profile default has no settings; `xapi login` writes them\n"

    assert xapi("profile", "show") == Outcome(0, "name  default\n", note)
    assert xapi("profile", "show", "--json") == Outcome(0, '{"name": "default"}\n', note)


def test_show_prints_one_profile(xapi: Xapi) -> None:
    _written(xapi)

    shown = (
        "name              work\nbase_url          https://api.test\nusername          me@example.com\n"
        "password_command  pass 'it'\"'\"'s'\n"
    )
    assert xapi("profile", "show") == Outcome(0, shown, "")
    assert json.loads(xapi("profile", "show", "home", "--json").out) == {"name": "home", "timeout": 2.5}
    assert json.loads(xapi("profile", "show", "-p", "home", "--json").out) == {"name": "home", "timeout": 2.5}
    assert json.loads(xapi("profile", "show", "default", "--json").out) == {"name": "default"}


def test_show_prints_a_profile_with_an_invalid_value(xapi: Xapi) -> None:
    _written(xapi, "[profiles.default]\nbase_url = 'ftp://x'\n")

    assert xapi("profile", "show") == Outcome(0, "name      default\nbase_url  ftp://x\n", "")
    assert xapi("token", "show").code == 2


def test_control_sequences_in_the_config_file_are_neutralized(xapi: Xapi) -> None:
    _written(xapi, '[profiles.default]\nusername = "\\u001b[2J\\u202e"\n')

    assert xapi("profile", "show").out == "name      default\nusername  \\x1b[2J\\u202e\n"
    assert "\x1b" not in xapi("profile", "list").out
    error = xapi("token", "show", "--base-url", "api.test")
    assert (error.code, error.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("args", [("profile", "list"), ("profile", "show"), ("doctor", "--no-input")])
def test_control_sequences_in_json_are_neutralized_and_the_json_is_equivalent(
    xapi: Xapi, args: tuple[str, ...]
) -> None:
    _written(
        xapi, '[profiles.default]\nusername = "\\u001b[2J\\u009b2J\\u202e\\u007f"\nca_bundle = "\\u009b/\\u2066"\n'
    )
    env = {"XAPI_BASE_URL": "https://127.0.0.1:1", "XAPI_USERNAME": "me"}

    piped = xapi(*args, "--json", env=env).out
    with xapi.on_terminal(*args, "--json", env=env, stderr=subprocess.DEVNULL) as terminal:
        terminal.wait()
    shown = terminal.seen.decode().removesuffix("\r\n")

    assert "\u2066" in piped
    assert shown.isprintable()
    assert json.loads(shown) == json.loads(piped)


@pytest.mark.parametrize(
    "key, value, line",
    [
        ("base_url", "HTTPS://API.test:443/v1/", 'base_url = "https://api.test/v1"'),
        ("username", "me@example.com", 'username = "me@example.com"'),
        ("storage", "file", 'storage = "file"'),
        ("timeout", "10", "timeout = 10"),
        ("max_time", "2.5", "max_time = 2.5"),
        ("max_time", "1h30m", 'max_time = "1h30m"'),
        ("password_command", "pass 'a b' c", 'password_command = ["pass", "a b", "c"]'),
        ("ca_bundle", "/etc/ssl/ca.pem", 'ca_bundle = "/etc/ssl/ca.pem"'),
        *(("keyring_cache", word, "keyring_cache = true") for word in ("true", "Yes", "on", "1")),
        *(("keyring_cache", word, "keyring_cache = false") for word in ("false", "no", "OFF", "0")),
    ],
)
def test_set_validates_and_stores_a_setting(xapi: Xapi, key: str, value: str, line: str) -> None:
    assert xapi("profile", "set", key, value) == Outcome(0, "", f"xapi: set {key} of profile default\n")

    assert _config(xapi) == f"[profiles.default]\n{line}\n"
    assert xapi("profile", "list").code == 0


@pytest.mark.parametrize(
    "key, value",
    [
        ("base_url", "ftp://x"),
        ("base_url", "http://u:CANARY@x"),
        ("base_url", ""),
        ("username", ""),
        ("username", "a\nb"),
        ("username", "a\u202eb"),
        ("storage", "cloud"),
        ("timeout", "0"),
        ("timeout", "-1"),
        ("timeout", "nan"),
        ("timeout", "inf"),
        ("timeout", "1_0"),
        ("max_time", "soon"),
        ("password_command", ""),
        ("password_command", "'open"),
        ("ca_bundle", ""),
        ("keyring_cache", "maybe"),
        ("keyring_cache", ""),
        ("password", "CANARY"),
        ("base-url", "x"),
    ],
)
def test_an_invalid_key_or_value_exits_with_2_and_changes_nothing(xapi: Xapi, key: str, value: str) -> None:
    outcome = xapi("profile", "set", key, value)

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "CANARY" not in outcome.err
    assert not xapi.config.exists()


@pytest.mark.parametrize(
    "key, value, line",
    [
        ("ca_bundle", "ca.pem", 'ca_bundle = "{home}/ca.pem"'),
        ("ca_bundle", "~/ca.pem", 'ca_bundle = "{home}/ca.pem"'),
        ("password_command", "./getpw ./a", 'password_command = ["{home}/getpw", "./a"]'),
        ("password_command", "~/getpw", 'password_command = ["{home}/getpw"]'),
        ("password_command", "getpw", 'password_command = ["getpw"]'),
    ],
)
def test_a_relative_path_is_stored_as_an_absolute_path(xapi: Xapi, key: str, value: str, line: str) -> None:
    xapi("profile", "set", key, value)

    assert _config(xapi) == f"[profiles.default]\n{line.format(home=xapi.home)}\n"


@pytest.mark.parametrize("key, value", [("ca_bundle", "ca.pem"), ("password_command", "./getpw")])
def test_a_relative_path_in_a_deleted_directory_exits_with_2(xapi: Xapi, key: str, value: str) -> None:
    outcome = in_deleted_directory(xapi, "profile", "set", key, value)

    assert outcome == Outcome(
        2,
        "",
        f"xapi: error: {key}: the path is relative, and the current directory was deleted; give an absolute path\n",
    )
    assert not xapi.config.exists()


def test_set_warns_about_shell_syntax_in_a_password_command(xapi: Xapi) -> None:
    warning = (
        "xapi: warning: password_command: | is shell syntax, but the command runs without a shell;"
        " to use a shell, write sh -c 'COMMAND'\n"
    )
    done = "xapi: set password_command of profile default\n"

    assert xapi("profile", "set", "password_command", "echo pw | tr a b") == Outcome(0, "", warning + done)
    assert xapi("profile", "set", "password_command", "sh -c 'echo pw | tr a b'") == Outcome(0, "", done)


def test_set_creates_the_profile_and_changes_the_selected_one(xapi: Xapi) -> None:
    xapi("profile", "set", "username", "a", "-p", "new")
    xapi("profile", "set", "username", "b", env={"XAPI_PROFILE": "other"})
    xapi("profile", "use", "new")
    xapi("profile", "set", "timeout", "5")

    names = json.loads(xapi("profile", "list", "--json").out)
    assert names == [
        {"name": "new", "current": True, "username": "a", "timeout": 5, "state": None, "expires_at": None},
        {"name": "other", "current": False, "username": "b", "state": None, "expires_at": None},
    ]


def test_use_and_remove_preserve_the_rest_of_the_file(xapi: Xapi) -> None:
    _written(xapi)

    assert xapi("profile", "use", "home") == Outcome(0, "", "xapi: the default profile is now home\n")
    assert _config(xapi) == WRITTEN.replace('"work"', '"home"', 1)
    assert xapi("profile", "remove", "home") == Outcome(0, "", "xapi: removed profile home\n")
    assert _config(xapi) == WRITTEN.partition("[profiles.home]")[0].replace('default_profile = "work"\n', "")
    assert xapi("profile", "use", "default").code == 0


def test_unset_removes_one_key_and_preserves_the_rest_of_the_file(xapi: Xapi) -> None:
    _written(xapi)

    assert xapi("profile", "unset", "username") == Outcome(0, "", "xapi: removed username from profile work\n")
    assert _config(xapi) == WRITTEN.replace('username = "me@example.com"\n', "")
    assert xapi("profile", "unset", "timeout", "-p", "home").code == 0
    assert _config(xapi).endswith("[profiles.home]\n")
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
    _written(xapi, text)
    assert xapi("profile", "unset", "timeout") == Outcome(0, "", "xapi: removed timeout from profile default\n")
    assert _config(xapi) == unset

    for written in (text, unset):
        _written(xapi, written)
        assert xapi("profile", "remove", "default") == Outcome(0, "", "xapi: removed profile default\n")
        assert _config(xapi) == ("profiles.b.timeout = 4\n" if removed is None else removed)


@pytest.mark.parametrize(("args", "name"), [((), "work"), (("-p", "home"), "home"), (("-p", "default"), "default")])
def test_unset_of_a_key_that_is_not_set_changes_nothing(xapi: Xapi, args: tuple[str, ...], name: str) -> None:
    _written(xapi)

    assert xapi("profile", "unset", "storage", *args) == Outcome(0, "", f"xapi: storage is not set in profile {name}\n")
    assert _config(xapi) == WRITTEN


def test_unset_of_the_base_url_warns_if_the_password_command_is_no_longer_bound_to_it(xapi: Xapi) -> None:
    _written(xapi)

    assert xapi("profile", "unset", "base_url") == Outcome(
        0,
        "",
        "xapi: warning: the password_command of profile work now runs for any base URL\n"
        "xapi: removed base_url from profile work\n",
    )


def test_unset_of_an_unknown_key_exits_with_2(xapi: Xapi) -> None:
    _written(xapi)

    outcome = xapi("profile", "unset", "timout")
    assert (outcome.code, outcome.err.partition("?")[0]) == (
        2,
        "xapi: error: unknown setting 'timout'; did you mean timeout",
    )
    assert _config(xapi) == WRITTEN


FORMS = {
    "tables": WRITTEN,
    "comments": "[profiles.work] # one\n# two\ntimeout = 1 # three\n\n# four\n[profiles.home]\n",
    "one table": "[profiles]\n  work = { timeout = 1 } # one\nhome = {}\n",
    "explicit parent": "[profiles]\n# one\n[profiles.work]\n[profiles.home]\n",
    "dotted keys": 'profiles.work.timeout = 1 # one\ndefault_profile = "work"\nprofiles.work.storage = "file"\n'
    "profiles.home.timeout = 2\n",
    "dotted keys in a table": '[profiles]\nwork.timeout = 1 # one\nwork.storage = "file"\nhome.timeout = 2\n',
    "inline": 'default_profile="work"\nprofiles = {work = {timeout = 1}, home = {}}\n',
    "spaces": "  [ profiles . work ] # one\n   timeout  =  1\n[profiles.home]\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "written"), [("office", "office"), ("me@work", '"me@work"')])
def test_rename_changes_the_name_and_the_default_profile_and_no_other_text(
    xapi: Xapi, form: str, name: str, written: str
) -> None:
    _written(xapi, FORMS[form])

    assert xapi("profile", "rename", "work", name) == Outcome(0, "", f"xapi: renamed profile work to {name}\n")
    default = FORMS[form].replace('"work"', f'"{name}"')
    assert _config(xapi) == re.sub(r"\bwork(?=[.\]\s])", written, default)
    assert [each["name"] for each in json.loads(xapi("profile", "list", "--json").out)] == [name, "home"]


def test_the_renamed_default_profile_stays_selected(xapi: Xapi) -> None:
    _written(xapi, "# mine\n[profiles.default]\ntimeout = 1\n")

    assert xapi("profile", "rename", "default", "work").code == 0
    assert json.loads(xapi("profile", "show", "--json").out) == {"name": "work", "timeout": 1}
    assert xapi("profile", "rename", "work", "default").code == 0
    assert json.loads(xapi("profile", "show", "--json").out) == {"name": "default", "timeout": 1}
    assert _config(xapi) == 'default_profile = "default"\n\n# mine\n[profiles.default]\ntimeout = 1\n'


def test_a_profile_with_an_invalid_name_can_be_renamed(xapi: Xapi) -> None:
    _written(xapi, "[profiles.'a b']\ntimeout = 1\n")

    assert xapi("profile", "rename", "a b", "ab") == Outcome(0, "", "xapi: renamed profile a b to ab\n")
    assert _config(xapi) == "[profiles.ab]\ntimeout = 1\n"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("work", "home"), "profile 'home' already exists; choose another name"),
        (("work", "work"), "profile 'work' already exists; choose another name"),
        (("work", "a b"), "'a b' is not a valid profile name; use letters, digits and the characters . _ - + @"),
        (("work", ""), "'' is not a valid profile name; use letters, digits and the characters . _ - + @"),
    ],
)
def test_rename_to_an_invalid_or_existing_name_exits_with_2(xapi: Xapi, args: tuple[str, str], error: str) -> None:
    _written(xapi)

    assert xapi("profile", "rename", *args) == Outcome(2, "", f"xapi: error: {error}\n")
    assert _config(xapi) == WRITTEN


def test_rename_warns_if_a_variable_selects_the_old_name(xapi: Xapi) -> None:
    _written(xapi)

    assert xapi("profile", "rename", "home", "flat", env={"XAPI_PROFILE": "home"}) == Outcome(
        0, "", "xapi: warning: XAPI_PROFILE still selects home; set it to flat\nxapi: renamed profile home to flat\n"
    )


@pytest.mark.parametrize("verb", [("use",), ("remove",), ("show",), ("unset", "timeout", "-p"), ("rename",)])
def test_a_profile_that_does_not_exist_exits_with_2_and_lists_the_existing_ones(
    xapi: Xapi, verb: tuple[str, ...]
) -> None:
    _written(xapi)

    more = ("new",) if verb == ("rename",) else ()
    assert xapi("profile", *verb, "nowhere", *more) == Outcome(
        2,
        "",
        "xapi: error: profile 'nowhere' does not exist;"
        " existing profiles: work, home; `xapi login --profile NAME` creates one\n",
    )
    assert _config(xapi) == WRITTEN


def test_every_command_reports_an_invalid_file_and_leaves_it_unchanged(xapi: Xapi) -> None:
    _written(xapi, "[profiles.work]\nbaseurl = 'x'\n")

    verbs = [("list",), ("show",), ("use", "work"), ("set", "timeout", "1"), ("unset", "timeout"), ("remove", "work")]
    for args in (*verbs, ("rename", "work", "home")):
        outcome = xapi("profile", *args)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"xapi: error: {xapi.config}/config.toml: unknown key profiles.work.baseurl; ")
    assert _config(xapi) == "[profiles.work]\nbaseurl = 'x'\n"
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
    _written(xapi)

    changes = [("use", "home"), ("set", "timeout", "1"), ("unset", "timeout"), ("unset", "timeout")]
    for args in (*changes, ("rename", "home", "flat"), ("remove", "flat")):
        assert xapi("profile", *args, "--quiet") == Outcome(0, "", ""), args
