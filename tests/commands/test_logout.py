"""`xapi logout` deletes from every store, and no login in progress undoes it."""

from pathlib import Path

import pytest

from tests.support.credential_helpers import install_fake
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send, wait_for
from tests.support.threads import Gate
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox


def test_a_logout_deletes_the_token_and_names_the_account(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    assert xapi("logout") == Outcome(0, "", f"xapi: logged out of {MASTER.email} at {sandbox.base_url}\n")

    assert list((xapi.state / "tokens").iterdir()) == []
    assert xapi("token", "show", "--no-login").code == 10
    assert MASTER.email not in "".join(path.read_text() for path in (xapi.state / "known").iterdir())


def test_without_a_stored_token_it_exits_with_0(xapi: Xapi) -> None:
    assert xapi("logout", "--base-url", "api.test", "-u", "me") == Outcome(
        0, "", "xapi: nothing was stored for me at https://api.test\n"
    )
    assert xapi("logout", "--all") == Outcome(0, "", "xapi: no known account, nothing to delete\n")
    (xapi.state / "known").symlink_to("known")  # cannot be read
    assert xapi("logout", "--all").code == 13


def test_without_an_account_it_exits_with_2_and_names_the_profiles_that_have_one(xapi: Xapi) -> None:
    error = "xapi: error: no base URL"
    remedy = "give --base-url, set XAPI_BASE_URL, or run `xapi login`"
    assert xapi("logout") == Outcome(2, "", f"{error}; {remedy}\n")

    for key, value in (("base_url", "https://api.test"), ("username", "me")):
        xapi("profile", "set", key, value, "-p", "work")
    assert xapi("logout") == Outcome(2, "", f"{error} in profile default; select a profile with -p (work), {remedy}\n")


def test_a_profile_that_does_not_exist_is_not_created_for_a_logout(xapi: Xapi) -> None:
    def error(name: str, hint: str) -> Outcome:
        return Outcome(2, "", f"xapi: error: profile {name!r} does not exist; {hint}\n")

    create = "create it with `xapi login --profile nope`"
    assert xapi("logout", "-p", "nope") == error("nope", create)

    xapi("profile", "set", "username", "me", "-p", "work")
    assert xapi("logout", "-p", "nope") == error("nope", f"select another profile (work), or {create}")
    assert xapi("logout", "-p", "works") == error("works", "did you mean work?")
    selected = xapi("logout", "--base-url", "https://api.test", "--username", "me", env={"XAPI_PROFILE": "nope"})
    assert selected.err.startswith("xapi: error: XAPI_PROFILE: profile 'nope' does not exist; ")


def test_the_remembered_password_is_deleted_too_and_from_every_store(xapi: Xapi, sandbox: Sandbox) -> None:
    keyring = xapi.fake_keyring()
    xapi("login", "--remember", env={**keyring, **sandbox.settings})
    xapi("login", env=sandbox.settings)

    assert xapi("logout", env={**keyring, "XAPI_STORAGE": "file"}).code == 0

    assert (xapi.home / "items.json").read_text() == "[]"
    assert list((xapi.state / "tokens").iterdir()) == []


def test_all_accounts_are_logged_out_together(xapi: Xapi, sandbox: Sandbox) -> None:
    member = {**sandbox.settings, "XAPI_USERNAME": MEMBER.email, "XAPI_PASSWORD": MEMBER.password}
    xapi("login", env=sandbox.settings)
    xapi("login", "-p", "member", env={**xapi.fake_keyring(), **member})

    outcome = xapi("logout", "--all", env=xapi.fake_keyring())

    assert (outcome.code, sorted(outcome.err.splitlines())) == (
        0,
        [f"xapi: logged out of {email} at {sandbox.base_url}" for email in (MASTER.email, MEMBER.email)],
    )
    assert (xapi.home / "items.json").read_text() == "[]"
    assert list((xapi.state / "tokens").iterdir()) == []


def test_a_failing_keyring_exits_with_13_and_the_other_accounts_are_logged_out(xapi: Xapi, sandbox: Sandbox) -> None:
    member = {**sandbox.settings, "XAPI_USERNAME": MEMBER.email, "XAPI_PASSWORD": MEMBER.password}
    xapi("login", "-p", "member", env={**xapi.fake_keyring("Raising"), **member})
    xapi("login", env=sandbox.settings)
    broken = {**xapi.fake_keyring("Raising"), "FAKE_KEYRING_RAISES": "OSError", "XAPI_STORAGE": "auto"}

    outcome = xapi("logout", "--all", env=broken)

    assert outcome.code == 13
    assert f"xapi: error: cannot log out of {MEMBER.email} at {sandbox.base_url}: " in outcome.err
    assert list((xapi.state / "tokens").iterdir()) == []
    assert "CANARY" not in outcome.err
    assert xapi("logout", "--all", env=xapi.fake_keyring("Raising")).err == (
        f"xapi: logged out of {MEMBER.email} at {sandbox.base_url}\n"
    )


UNUSABLE = {
    "Raising OSError": "deleting from the keyring failed (OSError); run `xapi doctor`, then log out again",
    "Raising KeyringLocked": "the keyring is locked; unlock it, then log out again",
    "Raising NoKeyringError": "no usable keyring on this machine; log out where you logged in",
    "Keeping always": (
        "the keyring accepts deletions but does not delete the record; delete it with another program, then log out"
        " again"
    ),
}


@pytest.mark.parametrize(("failure", "message"), UNUSABLE.items(), ids=UNUSABLE)
def test_the_error_of_a_logout_does_not_suggest_another_storage(
    xapi: Xapi, sandbox: Sandbox, failure: str, message: str
) -> None:
    backend, how = failure.split()
    xapi("login", env={**xapi.fake_keyring(backend), **sandbox.settings})
    broken = {**xapi.fake_keyring(backend), f"FAKE_KEYRING_{'RAISES' if backend == 'Raising' else 'KEEPS'}": how}

    for args in (("logout",), ("logout", "--all")):
        assert xapi(*args, env=broken) == Outcome(
            13,
            "",
            f"xapi: error: cannot log out of {MASTER.email} at {sandbox.base_url}:"
            f" the keyring (fake_keyrings.{backend}): {message}\n",
        )


def _tokens(xapi: Xapi) -> list[str]:
    return [path.name for path in (xapi.state / "tokens").glob("*.json")]


@pytest.mark.parametrize(
    ("args", "logout"),
    [
        ("login", "of one"), ("token show", "of one"), ("login", "of all"), ("token show", "of all"),
        ("request /me", "of all known"),
    ],
)  # fmt: skip
def test_a_logout_during_a_login_is_not_undone(xapi: Xapi, sandbox: Sandbox, args: str, logout: str) -> None:
    if logout != "of one":
        xapi("login", env=sandbox.settings)  # another account is known
    gate = Gate()
    body = b'{"access_token": "late"}'
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with Server([request(), gate.reached, wait_for(gate.open), send(response)], [request(), send(response)]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
        if logout == "of all known":
            assert xapi("logout", env=env).code == 0
        login = xapi.start(*args.split(), env=env)
        gate.wait()
        if logout == "of one":
            assert xapi("logout", env=env).code == 0
        else:
            assert xapi("logout", "--all").err == f"xapi: logged out of {MASTER.email} at {sandbox.base_url}\n"
            assert xapi("logout", "--all").err == "xapi: no known account, nothing to delete\n"
        gate.open.set()
        err = login.communicate()[1].decode()

    assert (login.returncode, "logged out" in err) == (13 if args == "login" else 0, True)
    assert xapi("token", "show", "--no-login", env=env).code == 10
    assert [_tokens(xapi), xapi("logout", "--all").err] == [[], "xapi: no known account, nothing to delete\n"]


def test_a_token_in_the_environment_is_reported(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    outcome = xapi("logout", env={"XAPI_TOKEN": "abc"})

    assert outcome.err.startswith(
        "xapi: warning: XAPI_TOKEN is set and overrides the stored token: commands use that token until"
    )


@pytest.mark.parametrize("command", [("logout",), ("logout", "--all")])
def test_a_helper_of_another_profile_is_used_and_named_if_it_does_not_exist(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, command: tuple[str, ...]
) -> None:
    def with_helper(path: Path) -> dict[str, str]:
        return {**sandbox.settings, "XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(path)}

    before, after = (install_fake(tmp_path / name) for name in ("before", "after"))
    assert xapi("login", env=with_helper(before.path)).code == 0
    hidden = before.path.rename(tmp_path / "hidden")

    outcome = xapi(*command, env=with_helper(after.path))
    assert (outcome.code, outcome.err.count("\n"), len(before.stored)) == (13, 1, 1)
    assert f": the credential helper ({before.path}): the credential helper {before.path.name} was not" in outcome.err
    hidden.rename(before.path)
    assert xapi(*command, env=with_helper(after.path)).code == 0
    assert (before.stored, xapi("logout", "--all").err) == ([], "xapi: no known account, nothing to delete\n")
