"""`xapi token show` in all its formats."""

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.program import Outcome, Xapi
from xapi_cli.features.sandbox import MASTER, MONTH, Sandbox


@pytest.fixture
def token(xapi: Xapi, sandbox: Sandbox) -> str:
    """A stored token."""
    xapi("login", env=sandbox.settings)
    return xapi("token", "show").out.removesuffix("\n")


def test_stdout_is_the_token_and_a_newline(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    assert xapi("token", "show") == Outcome(0, f"{token}\n", "")
    assert sandbox.user_of(token) == MASTER


def test_it_logs_in_if_necessary_and_reports_the_reason(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("token", "show", env=sandbox.settings)

    assert sandbox.user_of(outcome.out.removesuffix("\n")) == MASTER
    assert outcome.err == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: no stored token\n"
    assert not xapi.config.exists()  # only a login writes a profile


@pytest.mark.parametrize(
    "args, shown",
    [
        (("--format", "token"), "{}\n"),
        (("--format", "header"), "Authorization: Bearer {}\n"),
        (("--header",), "Authorization: Bearer {}\n"),
        (("--header", "--format", "header"), "Authorization: Bearer {}\n"),
    ],
)
def test_the_text_formats(xapi: Xapi, token: str, args: tuple[str, ...], shown: str) -> None:
    assert xapi("token", "show", *args) == Outcome(0, shown.format(token), "")


def test_the_env_format_binds_the_token_to_its_base_url(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    assert xapi("token", "show", "--format", "env") == Outcome(
        0,
        f"export XAPI_TOKEN='{token}'\nexport XAPI_BASE_URL='{sandbox.base_url}'\n",
    )


def test_a_shell_that_evaluates_the_env_format_calls_the_api_without_a_profile(xapi: Xapi, token: str) -> None:
    script = """
        eval "$(xapi token show --format env)"
        export XAPI_CONFIG_DIR=/nonexistent
        xapi request /x-api/me
        xapi request /x-api/me --base-url http://127.0.0.1:9
    """
    out, err = xapi.start(script, argv=("sh", "-c")).communicate(timeout=60)

    assert b"master@example.com" in out
    assert err.startswith(b"xapi: error: XAPI_TOKEN is for http://127.0.0.1:"), err
    assert token.encode() not in out + err


def test_the_env_format_of_a_supplied_token_without_a_base_url_is_one_line(xapi: Xapi) -> None:
    assert xapi("token", "show", "--format", "env", env={"XAPI_TOKEN": "abc"}).out == "export XAPI_TOKEN='abc'\n"


@pytest.mark.parametrize("args", [("--json",), ("--format", "json")])
def test_the_json_format(xapi: Xapi, token: str, sandbox: Sandbox, args: tuple[str, ...]) -> None:
    shown = json.loads(xapi("token", "show", *args).out)

    expires_at = datetime.now(UTC) + timedelta(seconds=MONTH)
    assert abs(shown["expires_at_epoch"] - expires_at.timestamp()) < 60
    assert shown == {
        "access_token": token,
        "token_type": "bearer",
        "expires_at": datetime.fromtimestamp(shown["expires_at_epoch"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "expires_at_epoch": shown["expires_at_epoch"],
        "expires_in": shown["expires_in"],
        "base_url": sandbox.base_url,
        "username": MASTER.email,
        "profile": "default",
        "storage": "file",
        "source": "store",
    }
    assert MONTH - 60 < shown["expires_in"] <= MONTH


def test_the_source_states_where_the_token_comes_from(xapi: Xapi, sandbox: Sandbox) -> None:
    def source(**env: str) -> tuple[str, str]:
        shown = json.loads(xapi("token", "show", "--json", env={**sandbox.settings, **env}).out)
        return shown["source"], shown["storage"]

    assert source() == ("login", "file")
    assert source() == ("store", "file")
    assert source(XAPI_STORAGE="none") == ("login", "none")
    assert source(XAPI_TOKEN="abc") == ("env", "none")


def test_a_supplied_token_needs_no_other_setting_and_has_no_expiry(xapi: Xapi) -> None:
    outcome = xapi("token", "show", "--json", "--min-ttl", "1000d", env={"XAPI_TOKEN": "abc~/+"})

    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {
        "access_token": "abc~/+",
        "token_type": "bearer",
        "expires_at": None,
        "expires_at_epoch": None,
        "expires_in": None,
        "base_url": None,
        "username": None,
        "profile": "default",
        "storage": "none",
        "source": "env",
    }


@pytest.mark.parametrize("command", [("token", "show"), ("token", "status"), ("exec", "--", "true")])
def test_with_a_supplied_token_the_keyring_is_not_imported(xapi: Xapi, command: tuple[str, ...]) -> None:
    env = {"XAPI_TOKEN": "abc", "XAPI_STORAGE": "keyring", "PYTHONPROFILEIMPORTTIME": "1"}
    outcome = xapi(*command, env=env)

    imported = {line.rpartition("|")[2].strip() for line in outcome.err.splitlines() if line.startswith("import time:")}
    assert outcome.code == 0
    assert "typer" in imported
    assert not {"httpx", "keyring", "secretstorage", "xapi_cli.store.keyring.store"} & imported


def test_a_supplied_token_that_is_not_valid_in_a_header_exits_with_2_and_is_not_shown(xapi: Xapi) -> None:
    outcome = xapi("token", "show", env={"XAPI_TOKEN": "CANARY\n"})

    assert (outcome.code, outcome.err) == (
        2,
        (
            "xapi: error: XAPI_TOKEN: the value contains characters that are not allowed in a token; "
            "set it to the token alone, without spaces or a newline\n"
        ),
    )


def test_a_shell_can_evaluate_the_env_format(xapi: Xapi) -> None:
    token = "a'b\"c$d`e\\f!g*h;i"
    printed = xapi("token", "show", "--format", "env", env={"XAPI_TOKEN": token}).out

    shell = subprocess.run(
        ["sh", "-c", 'eval "$1"; printf %s "$XAPI_TOKEN"', "sh", printed], capture_output=True, check=True
    )
    assert shell.stdout.decode() == token


def test_min_ttl_renews_a_token_with_less_left(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    assert xapi("token", "show", "--min-ttl", "29d").out == f"{token}\n"

    outcome = xapi("token", "show", "--min-ttl", "31d", env=sandbox.settings)

    assert outcome.code == 0
    assert outcome.out != f"{token}\n"
    assert outcome.err == (
        f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: the stored token has too little time left\n"
        "xapi: warning: the new token also has less time left than --min-ttl requires\n"
    )
    assert sandbox.logins == 2


def test_fresh_always_logs_in(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    outcome = xapi("token", "show", "--fresh", env=sandbox.settings)

    assert outcome.out != f"{token}\n"
    assert outcome.err == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: a new token was requested\n"
    assert xapi("token", "show").out == outcome.out


def test_no_login_never_logs_in(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("token", "show", "--no-login", env=sandbox.settings) == Outcome(
        10,
        "",
        f"xapi: error: not logged in as {MASTER.email} at {sandbox.base_url}: no stored token, and --no-login was"
        " given; run `xapi login`\n",
    )
    assert sandbox.login_attempts == 0


@pytest.mark.parametrize(
    "args, env",
    [
        (("--fresh", "--no-login"), {}),
        (("--fresh",), {"XAPI_TOKEN": "abc"}),
        (("--header", "--json"), {}),
        (("--format", "env", "--json"), {}),
        (("--format", "xml"), {}),
        (("--min-ttl", "soon"), {}),
        (("--min-ttl", ""), {}),
        (("CANARY",), {}),
        (("-p", "nowhere"), {}),
    ],
)
def test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent(
    xapi: Xapi, sandbox: Sandbox, args: tuple[str, ...], env: dict[str, str]
) -> None:
    outcome = xapi("token", "show", *args, env={**sandbox.settings, **env})

    assert (outcome.code, outcome.out, outcome.err.count("\n"), sandbox.login_attempts) == (2, "", 1, 0)
    assert "CANARY" not in outcome.err


def test_a_github_runner_gets_a_mask_for_the_token(xapi: Xapi) -> None:
    env = {"XAPI_TOKEN": "ab%0Ac", "GITHUB_ACTIONS": "true"}

    assert xapi("token", "show", env=env) == Outcome(0, "ab%0Ac\n", "::add-mask::ab%250Ac\n")
    assert xapi("token", "show", env={**env, "GITHUB_ACTIONS": "1"}).err == ""


def test_a_garbage_record_is_treated_as_no_token(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    (path,) = (xapi.state / "tokens").iterdir()
    good = path.read_text()
    for bad in (
        "",
        good[:-9],
        good.replace('"version": 1', '"version": 2'),
        "[" * 9999,
        "\0",
        good.replace(token, "a b"),
    ):
        path.write_text(bad)
        assert xapi("token", "show", "--no-login").code == 10
    path.write_text(good)
    assert xapi("token", "show", "--no-login").code == 0


def test_accounts_are_compared_by_normalized_url_and_username(xapi: Xapi, token: str, sandbox: Sandbox) -> None:
    def code(base_url: str, username: str = MASTER.email) -> int:
        return xapi("token", "show", "--no-login", "--base-url", base_url, "-u", username).code

    same = sandbox.base_url.replace("http", "HTTP")
    assert [code(sandbox.base_url), code(same), code(f"{sandbox.base_url}/")] == [0, 0, 0]
    others = [code(f"{sandbox.base_url}/v2"), code(sandbox.base_url.replace("127.0.0.1", "localhost"))]
    assert [*others, code(sandbox.base_url, MASTER.email.upper())] == [10, 10, 10]


def test_a_token_file_is_private_with_any_umask(xapi: Xapi, sandbox: Sandbox) -> None:
    shell = ("sh", "-c", 'umask 0; exec "$@"', "sh")
    process = xapi.start("login", env=sandbox.settings, argv=(*shell, "xapi"))
    process.communicate(timeout=20)

    everything = [xapi.state, xapi.config, *xapi.state.rglob("*"), *xapi.config.rglob("*")]
    assert process.returncode == 0
    assert {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in everything} == {
        (True, "0o700"),
        (False, "0o600"),
    }
    assert Path(everything[0]) == xapi.state
