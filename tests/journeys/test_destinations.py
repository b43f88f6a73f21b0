"""Where secrets are sent: the password of a profile to its account, a bound token to its base URL."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.combinations import combined
from tests.support.program import PROGRAM, Xapi
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox

WITHHELD = "the password_command of profile play is not run: it belongs to {}, not to {}"
HINT = "set XAPI_PASSWORD, or use the profile of that account"


@pytest.fixture
def other() -> Iterator[Sandbox]:
    with Sandbox() as server:
        yield server


@pytest.fixture
def play(xapi: Xapi, sandbox: Sandbox) -> Xapi:
    """The program with a profile `play` for the sandbox, whose password_command records that it ran."""
    _write_profiles(xapi, play=sandbox)
    return xapi


def _write_profiles(xapi: Xapi, **profiles: Sandbox) -> None:
    (xapi.home / "password").write_text(MASTER.password)
    xapi.config.mkdir(exist_ok=True)
    (xapi.config / "config.toml").write_text(
        "".join(
            f"[profiles.{name}]\nbase_url = '{sandbox.base_url}'\nusername = '{MASTER.email}'\n"
            f"password_command = ['sh', '-c', 'touch ran; cat password']\n"
            for name, sandbox in profiles.items()
        )
    )


def _with(flags: tuple[str, ...], args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command *args* with *flags* after its name."""
    name = 2 if args[0] == "token" else 1
    return (*args[:name], *flags, *args[name:])


def _has_run(xapi: Xapi) -> bool:
    return (xapi.home / "ran").exists()


# the password_command of a profile


@pytest.mark.parametrize(
    ("args", "how"),
    combined(
        ["request /x-api/me", "token show", "token show --fresh", "exec true", "login", "batch"], ["flag", "variable"]
    ),
)
def test_a_password_command_is_not_run_for_another_base_url(
    play: Xapi, sandbox: Sandbox, other: Sandbox, args: str, how: str
) -> None:
    flag = ("--base-url", other.base_url) if how == "flag" else ()
    env = {} if how == "flag" else {"XAPI_BASE_URL": other.base_url}
    outcome = play(*_with(("-p", "play", *flag), tuple(args.split())), env=env, input='{"path": "/x-api/me"}\n')

    assert outcome.code == 10
    assert WITHHELD.format(sandbox.base_url, other.base_url) in outcome.err + outcome.out
    assert (_has_run(play), other.login_attempts, other.requests) == (False, 0, 0)


@pytest.mark.parametrize("args", [("request", "/x-api/me"), ("login",)], ids=" ".join)
@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_password_command_is_not_run_for_another_username(
    play: Xapi, sandbox: Sandbox, args: tuple[str, ...], how: str
) -> None:
    flag = ("-u", MEMBER.email) if how == "flag" else ()
    env = {} if how == "flag" else {"XAPI_USERNAME": MEMBER.email}
    outcome = play(*args, "-p", "play", *flag, env=env)

    *warnings, error = outcome.err.splitlines()
    assert (outcome.code, error) == (10, f"xapi: error: {WITHHELD.format(MASTER.email, MEMBER.email)}; {HINT}")
    assert len(warnings) == (0 if how == "flag" else 1)
    assert all("XAPI_USERNAME overrides the account of profile play" in warning for warning in warnings)
    assert (_has_run(play), sandbox.login_attempts) == (False, 0)


def test_no_prompt_replaces_a_withheld_password_command(play: Xapi, other: Sandbox) -> None:
    for args in (("login",), ("request", "/x-api/me")):
        with play.on_terminal(*args, "-p", "play", "--base-url", other.base_url, columns=400) as terminal:
            assert terminal.wait() == 10
        assert b"is not run: it belongs to" in terminal.seen


def test_a_password_command_given_with_a_base_url_is_stored_with_it(play: Xapi, other: Sandbox) -> None:
    args = ("--base-url", other.base_url, "--password-command", "cat password")
    assert play("login", "-p", "play", *args).code == 0

    shown = json.loads(play("profile", "show", "play", "--json").out)
    assert (shown["base_url"], shown["password_command"]) == (other.base_url, ["cat", "password"])
    assert play("token", "show", "--fresh", "-p", "play").code == 0
    assert not _has_run(play)


def test_a_login_that_changes_the_base_url_removes_the_password_command(
    play: Xapi, sandbox: Sandbox, other: Sandbox
) -> None:
    outcome = play("login", "-p", "play", "--base-url", other.base_url, "--password-stdin", input=MASTER.password)

    assert outcome.code == 0
    assert outcome.err.startswith(
        "xapi: warning: the setting password_command of profile play was removed:"
        f" it belongs to {sandbox.base_url}, not to {other.base_url};"
        " to use it there too, set it again with `xapi profile set password_command --profile play`\n"
    )
    shown = json.loads(play("profile", "show", "play", "--json").out)
    assert (shown["base_url"], "password_command" in shown) == (other.base_url, False)
    assert (play("token", "show", "--fresh", "-p", "play").code, _has_run(play)) == (10, False)


# a token that is bound to a base URL


@pytest.fixture
def prod(xapi: Xapi, sandbox: Sandbox, other: Sandbox) -> Xapi:
    """The program with two profiles: `prod` for the sandbox, `staging` for the other."""
    _write_profiles(xapi, prod=sandbox, staging=other)
    return xapi


ME = ("request", "/x-api/me")


@pytest.mark.parametrize(
    "selection",
    [
        (),
        ("--base-url", "{prod}/"),
        ("-p", "staging", "--base-url", "{prod}"),
    ],
)
def test_a_token_from_exec_is_used_for_its_base_url(prod: Xapi, sandbox: Sandbox, selection: tuple[str, ...]) -> None:
    args = [word.format(prod=sandbox.base_url) for word in selection]

    outcome = prod("exec", "-p", "prod", "--", str(PROGRAM), *ME, *args)

    assert (outcome.code, json.loads(outcome.out)["email"]) == (0, MASTER.email)
    assert sandbox.logins == 1
    if not args:
        assert prod("exec", "-p", "prod", "--", str(PROGRAM), *ME, "-p", "staging").code == 2


_COMMANDS = ["request DELETE /thing", "token show", "token status", "exec true", "batch", "login", "logout"]


@pytest.mark.parametrize(
    ("args", "selection"),
    combined(_COMMANDS, ["-p staging", "--base-url {staging}", "XAPI_PROFILE=staging"]),
)
def test_a_token_is_not_used_for_another_base_url_than_the_one_beside_it(
    prod: Xapi, sandbox: Sandbox, other: Sandbox, args: str, selection: str
) -> None:
    given = tuple(word.format(staging=other.base_url) for word in selection.split())
    place = "--base-url" if "--base-url" in selection else "profile staging"
    variables, flags = ({"XAPI_PROFILE": "staging"}, ()) if len(given) == 1 else ({}, given)
    env = {"XAPI_TOKEN": "abc", "XAPI_BASE_URL": sandbox.base_url, **variables}  # as `exec` sets them

    outcome = prod(*_with(flags, tuple(args.split())), env=env)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"xapi: error: XAPI_TOKEN is for {sandbox.base_url} (XAPI_BASE_URL), but {place} selects {other.base_url};"
        " unset XAPI_TOKEN and XAPI_BASE_URL, or select the same base URL\n"
    )
    assert (sandbox.requests, other.requests, other.login_attempts) == (0, 0, 0)


@pytest.mark.parametrize("flags", [("-p", "prod"), ("--base-url", "{prod}")], ids=" ".join)
def test_exec_passes_on_only_the_profile_of_its_base_url(prod: Xapi, sandbox: Sandbox, flags: tuple[str, ...]) -> None:
    args = [word.format(prod=sandbox.base_url) for word in flags]
    env = {"XAPI_PROFILE": None if "-p" in flags else "staging", "XAPI_USERNAME": MASTER.email}

    assert prod("login", "-p", "prod").code == 0
    outcome = prod("exec", *args, "--", "sh", "-c", "echo ${XAPI_PROFILE-none}", env=env)

    assert (outcome.code, outcome.out) == (0, "prod\n" if "-p" in flags else "none\n")


@pytest.mark.parametrize(
    ("secret", "env", "flags", "place"),
    combined(
        ["XAPI_TOKEN", "XAPI_TOKEN_FILE", "XAPI_PASSWORD"],
        [
            ({"XAPI_BASE_URL": "{prod}"}, ["--base-url", "{staging}"], "--base-url"),
            ({"XAPI_BASE_URL": "{prod}"}, ["-p", "staging"], "profile staging"),
            ({"XAPI_BASE_URL": "{prod}", "XAPI_PROFILE": "staging"}, [], "profile staging"),
            ({"XAPI_BASE_URL": "{staging}"}, ["-p", "prod"], "profile prod"),
            ({"XAPI_BASE_URL": "{prod}/"}, ["-p", "prod"], None),
            ({"XAPI_BASE_URL": ""}, ["--base-url", "{prod}"], None),
            ({"XAPI_BASE_URL": "{prod}"}, ["-p", "staging", "--base-url", "{prod}"], None),
        ],
    ),
)
def test_a_secret_in_a_variable_belongs_to_the_base_url_beside_it(
    prod: Xapi,
    sandbox: Sandbox,
    other: Sandbox,
    tmp_path: Path,
    secret: str,
    env: dict[str, str],
    flags: list[str],
    place: str | None,
) -> None:
    (tmp_path / "token").write_text(sandbox.log_in(MASTER.email, MASTER.password) or "")
    values = {"XAPI_TOKEN": (tmp_path / "token").read_text(), "XAPI_TOKEN_FILE": str(tmp_path / "token")}
    urls = {"prod": sandbox.base_url, "staging": other.base_url}
    variables = {name: value.format_map(urls) for name, value in env.items()} | {"XAPI_PASSWORD": None}
    variables |= {secret: values.get(secret, MASTER.password), "XAPI_USERNAME": MASTER.email}
    requests = sandbox.requests

    outcome = prod(*ME, *(word.format_map(urls) for word in flags), env=variables)

    assert outcome.code == (2 if place else 0), outcome.err
    assert place is None or outcome.err.startswith(f"xapi: error: {secret} is for ")
    assert place is None or f" (XAPI_BASE_URL), but {place} selects " in outcome.err
    assert other.requests == other.login_attempts == 0
    assert place is None or sandbox.requests == requests
