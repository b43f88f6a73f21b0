"""Where secrets go: a profile's password to the account of that profile, a bound token to its base URL."""

import json
from collections.abc import Iterator

import pytest

from tests.program import PROGRAM, Xapi
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox

WITHHELD = "the password_command of profile play is not run: it belongs to {}, not to {}"
HINT = "set XAPI_PASSWORD, or use the profile of that account"


@pytest.fixture
def other() -> Iterator[Sandbox]:
    with Sandbox() as server:
        yield server


@pytest.fixture
def play(xapi: Xapi, sandbox: Sandbox) -> Xapi:
    """The program with a profile `play` for the sandbox, whose password_command notes that it was run."""
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


def _with(flags: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    """Return *words* of a command with *flags* after its name."""
    name = 2 if words[0] == "token" else 1
    return (*words[:name], *flags, *words[name:])


def _was_run(xapi: Xapi) -> bool:
    return (xapi.home / "ran").exists()


# the password_command of a profile


@pytest.mark.parametrize(
    "words",
    [
        ("request", "/x-api/me"),
        ("token", "show"),
        ("token", "show", "--fresh"),
        ("exec", "true"),
        ("login",),
        ("batch",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_password_command_is_not_run_for_another_base_url(
    play: Xapi, sandbox: Sandbox, other: Sandbox, words: tuple[str, ...], how: str
) -> None:
    flag = ("--base-url", other.base_url) if how == "flag" else ()
    env = {} if how == "flag" else {"XAPI_BASE_URL": other.base_url}
    outcome = play(*_with(("-p", "play", *flag), words), env=env, input='{"path": "/x-api/me"}\n')

    assert outcome.code == 10
    assert WITHHELD.format(sandbox.base_url, other.base_url) in outcome.err + outcome.out
    assert (_was_run(play), other.login_attempts, other.requests) == (False, 0, 0)


@pytest.mark.parametrize("words", [("request", "/x-api/me"), ("login",)], ids=" ".join)
@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_password_command_is_not_run_for_another_username(
    play: Xapi, sandbox: Sandbox, words: tuple[str, ...], how: str
) -> None:
    flag = ("-u", MEMBER.email) if how == "flag" else ()
    env = {} if how == "flag" else {"XAPI_USERNAME": MEMBER.email}
    outcome = play(*words, "-p", "play", *flag, env=env)

    assert (outcome.code, outcome.err) == (
        10,
        f"xapi: error: {WITHHELD.format(MASTER.email, MEMBER.email)}; {HINT}\n",
    )
    assert (_was_run(play), sandbox.login_attempts) == (False, 0)


def test_the_same_base_url_written_otherwise_is_the_same(play: Xapi, sandbox: Sandbox) -> None:
    url = sandbox.base_url.replace("http:", "HTTP:") + "/"

    assert play("request", "/x-api/me", "-p", "play", "--base-url", url, "-u", MASTER.email).code == 0
    assert _was_run(play)


def test_a_profile_without_a_base_url_binds_nothing(xapi: Xapi, sandbox: Sandbox) -> None:
    (xapi.home / "password").write_text(MASTER.password)
    xapi("profile", "set", "password_command", "cat password")

    assert xapi("request", "/x-api/me", env={**sandbox.settings, "XAPI_PASSWORD": None}).code == 0


def test_a_password_that_is_given_is_used_for_any_account(play: Xapi, other: Sandbox) -> None:
    env = {"XAPI_PASSWORD": MASTER.password}

    assert play("request", "/x-api/me", "-p", "play", "--base-url", other.base_url, env=env).code == 0
    assert not _was_run(play)


def test_nobody_is_asked_for_what_a_withheld_command_would_give(play: Xapi, other: Sandbox) -> None:
    for words in (("login",), ("request", "/x-api/me")):
        with play.on_terminal(*words, "-p", "play", "--base-url", other.base_url, columns=400) as terminal:
            assert terminal.wait() == 10
        assert b"is not run: it belongs to" in terminal.seen


def test_a_password_command_given_with_a_base_url_is_used_and_kept_with_it(play: Xapi, other: Sandbox) -> None:
    words = ("--base-url", other.base_url, "--password-command", "cat password")
    assert play("login", "-p", "play", *words).code == 0

    shown = json.loads(play("profile", "show", "play", "--json").out)
    assert (shown["base_url"], shown["password_command"]) == (other.base_url, ["cat", "password"])
    assert play("token", "show", "--fresh", "-p", "play").code == 0
    assert not _was_run(play)


def test_a_login_that_moves_a_profile_takes_its_password_command_away(
    play: Xapi, sandbox: Sandbox, other: Sandbox
) -> None:
    outcome = play("login", "-p", "play", "--base-url", other.base_url, "--password-stdin", input=MASTER.password)

    assert outcome.code == 0
    assert outcome.err.startswith(
        "xapi: warning: the password_command of profile play is removed:"
        f" it belongs to {sandbox.base_url}, not to {other.base_url}; "
    )
    shown = json.loads(play("profile", "show", "play", "--json").out)
    assert (shown["base_url"], "password_command" in shown) == (other.base_url, False)
    assert (play("token", "show", "--fresh", "-p", "play").code, _was_run(play)) == (10, False)


def test_the_doctor_says_that_a_password_command_belongs_elsewhere(
    play: Xapi, sandbox: Sandbox, other: Sandbox
) -> None:
    outcome = play("doctor", "-p", "play", "--base-url", other.base_url)

    assert outcome.code == 1
    assert f"fail  password  {WITHHELD.format(sandbox.base_url, other.base_url)}; {HINT}\n" in outcome.out


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
        ("-p", "prod"),
        ("--base-url", "{prod}"),
        ("--base-url", "{prod}/"),
        ("-p", "staging", "--base-url", "{prod}"),
    ],
)
def test_in_exec_the_token_is_used_for_its_own_base_url(
    prod: Xapi, sandbox: Sandbox, selection: tuple[str, ...]
) -> None:
    words = [word.format(prod=sandbox.base_url) for word in selection]

    outcome = prod("exec", "-p", "prod", "--", str(PROGRAM), *ME, *words)

    assert (outcome.code, json.loads(outcome.out)["email"]) == (0, MASTER.email)
    assert sandbox.logins == 1


@pytest.mark.parametrize(
    "words",
    [
        ("request", "DELETE", "/thing"),
        ("token", "show"),
        ("token", "status"),
        ("exec", "true"),
        ("batch",),
        ("login",),
        ("logout",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "selection", [("-p", "staging"), ("--base-url", "{staging}"), ("XAPI_PROFILE=staging",)], ids=" ".join
)
def test_in_exec_the_token_is_not_used_for_another_base_url(
    prod: Xapi, sandbox: Sandbox, other: Sandbox, words: tuple[str, ...], selection: tuple[str, ...]
) -> None:
    given = tuple(word.format(staging=other.base_url) for word in selection)
    variables, flags = (("env", *given), ()) if len(given) == 1 else ((), given)
    assert prod("login", "-p", "prod").code == 0
    requests = sandbox.requests

    outcome = prod("exec", "-p", "prod", "--", *variables, str(PROGRAM), *_with(flags, words))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"xapi: error: XAPI_TOKEN is for {sandbox.base_url}, but the settings select {other.base_url};"
        " select the same base URL, or unset XAPI_TOKEN and XAPI_TOKEN_BASE_URL\n"
    )
    assert (sandbox.requests, other.requests, other.login_attempts) == (requests, 0, 0)


@pytest.mark.parametrize("flags", [("-p", "prod"), ("--base-url", "{prod}")], ids=" ".join)
def test_exec_passes_on_the_profile_that_its_base_url_comes_from_and_no_other(
    prod: Xapi, sandbox: Sandbox, flags: tuple[str, ...]
) -> None:
    words = [word.format(prod=sandbox.base_url) for word in flags]
    env = {"XAPI_PROFILE": None if "-p" in flags else "staging", "XAPI_USERNAME": MASTER.email}

    assert prod("login", "-p", "prod").code == 0
    outcome = prod("exec", *words, "--", "sh", "-c", "echo ${XAPI_PROFILE-none}", env=env)

    assert (outcome.code, outcome.out) == (0, "prod\n" if "-p" in flags else "none\n")


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({}, 0),
        ({"XAPI_TOKEN_BASE_URL": ""}, 0),
        ({"XAPI_TOKEN_BASE_URL": "{prod}/"}, 0),
        ({"XAPI_TOKEN_BASE_URL": "{staging}"}, 2),
        ({"XAPI_TOKEN_BASE_URL": "{prod}/prefix"}, 2),
        ({"XAPI_TOKEN_BASE_URL": "ftp://x"}, 2),
        ({"XAPI_TOKEN_BASE_URL": "{prod}", "XAPI_BASE_URL": "{staging}"}, 2),
        ({"XAPI_TOKEN_BASE_URL": "{staging}", "XAPI_TOKEN": ""}, 0),
    ],
)
def test_a_user_can_bind_a_token_too(
    prod: Xapi, sandbox: Sandbox, other: Sandbox, env: dict[str, str], code: int
) -> None:
    token = prod("token", "show", "-p", "prod").out.strip()
    requests = sandbox.requests
    urls = {"prod": sandbox.base_url, "staging": other.base_url}
    variables = {"XAPI_TOKEN": token} | {name: value.format_map(urls) for name, value in env.items()}

    outcome = prod(*ME, "-p", "prod", env=variables)

    assert outcome.code == code
    assert (sandbox.requests, other.requests) == (requests + (code == 0), 0)
    assert code == 0 or "XAPI_TOKEN" in outcome.err


def test_the_doctor_names_a_token_of_another_base_url_and_sends_nothing(
    prod: Xapi, sandbox: Sandbox, other: Sandbox
) -> None:
    env = {"XAPI_TOKEN": "abc", "XAPI_TOKEN_BASE_URL": sandbox.base_url}
    outcome = prod("doctor", "-p", "staging", env=env)

    assert outcome.code == 1
    assert f"fail  profile   XAPI_TOKEN is for {sandbox.base_url}, but the settings select" in outcome.out
    assert (sandbox.requests, other.requests) == (0, 0)
