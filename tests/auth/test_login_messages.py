"""The sentences about a login."""

from datetime import UTC, datetime, timedelta

import pytest

from xapi_cli.auth import login_messages
from xapi_cli.tokens import Identity, Token

ME = Identity("https://api.test/v1", "me\x1b@example.com")
NAME = r"me\x1b@example.com at https://api.test/v1"
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "expires_at, expiry",
    [(NOW + timedelta(days=30), " until 2026-12-21 08:00 UTC (in 30 days)"), (None, " with an unknown expiry")],
)
def test_an_explicit_login_states_the_account_the_expiry_and_what_was_stored(
    expires_at: datetime | None, expiry: str
) -> None:
    text = login_messages.logged_in(ME, Token("t", expires_at=expires_at), NOW, "token stored in a file")

    assert text == f"logged in as {NAME}{expiry}, token stored in a file"


def test_an_automatic_login_states_the_account_and_the_reason() -> None:
    assert login_messages.logged_in_automatically(ME, "missing") == f"logged in as {NAME}: no stored token"
    assert login_messages.not_logged_in(ME, "expired", "no password source is available") == (
        f"not logged in as {NAME}: the stored token has expired, and no password source is available"
    )
