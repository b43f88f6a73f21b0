"""Variables that replace the account of a profile that the user has selected with -p: a warning names both."""

import pytest

from tests.support.program import Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox

_URL = "http://127.0.0.1:1"


@pytest.fixture
def sandbox_profile(xapi: Xapi, sandbox: Sandbox) -> dict[str, str | None]:
    """Store the account of the sandbox in profile play; return the environment without it."""
    assert xapi("login", "-p", "play", env=sandbox.settings).code == 0
    return {**sandbox.settings, "XAPI_BASE_URL": None, "XAPI_USERNAME": None}


@pytest.mark.parametrize(
    "variables", [{"XAPI_BASE_URL": _URL}, {"XAPI_USERNAME": "me"}, {"XAPI_BASE_URL": _URL, "XAPI_USERNAME": "me"}]
)
def test_a_variable_that_replaces_the_account_of_the_selected_profile_causes_a_warning(
    xapi: Xapi, sandbox_profile: dict[str, str | None], variables: dict[str, str]
) -> None:
    outcome = xapi("token", "status", "-p", "play", env=sandbox_profile | variables | {"XAPI_PASSWORD": None})

    warning = f"{' and '.join(variables)} overrides the account of profile play; unset it to use it"
    assert outcome.err.splitlines()[0] == f"xapi: warning: {warning}"
    username = variables.get("XAPI_USERNAME", MASTER.email)  # the variable takes precedence
    assert f'"username": "{username}"' in outcome.out


@pytest.mark.parametrize(
    ("args", "variables"),
    [
        (("-p", "play"), {"XAPI_USERNAME": MASTER.email}),  # the same
        (("-p", "play", "-u", "me"), {"XAPI_USERNAME": "you"}),  # a flag overrides both
        ((), {"XAPI_PROFILE": "play", "XAPI_USERNAME": "me"}),  # the environment selects both
    ],
)
def test_no_other_combination_causes_a_warning(
    xapi: Xapi, sandbox_profile: dict[str, str | None], args: tuple[str, ...], variables: dict[str, str]
) -> None:
    assert "warning" not in xapi("token", "status", *args, env=sandbox_profile | variables).err
