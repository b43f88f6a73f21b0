"""The sentences about a login: `logged in as …`, and why there was one or could not be one."""

from datetime import datetime

from xapi_cli.auth.credentials import Reason
from xapi_cli.system.render import printable, until
from xapi_cli.tokens import Identity, Token

CREDENTIALS = "username and password"  # in a hint; the account names their source instead
REASONS: dict[Reason, str] = {
    "missing": "no stored token",
    "expired": "the stored token has expired",
    "rejected": "the API rejected the stored token (401)",
    "short": "the stored token has too little time left",
    "fresh": "a new token was requested",
}


def name_of(identity: Identity) -> str:
    """Return the name of the account *identity*, for messages."""
    return f"{printable(identity.username)} at {printable(identity.base_url)}"


def logged_in(identity: Identity, token: Token, now: datetime, stored: str) -> str:
    """Return the sentence about an explicit login; *stored* states what was stored, and where."""
    expiry = " with an unknown expiry" if token.expires_at is None else f" until {until(token.expires_at, now)}"
    return f"logged in as {name_of(identity)}{expiry}, {stored}"


def logged_in_automatically(identity: Identity, reason: Reason) -> str:
    """Return the sentence about an automatic login."""
    return f"logged in as {name_of(identity)}: {REASONS[reason]}"


def not_logged_in(identity: Identity, reason: Reason, obstacle: str) -> str:
    """Return the sentence about an automatic login that was not possible because of *obstacle*."""
    return f"not {logged_in_automatically(identity, reason)}, and {obstacle}"
