"""Output formats of a token and its metadata, for scripts and for users."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from xapi_cli.system.render import instant, json_line, shell_quoted, until
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.credentials import Source
    from xapi_cli.system.style import Style


@dataclass(frozen=True)
class Subject:
    """The account and profile of a token, and where the token comes from; *variable* is that of a supplied token."""

    base_url: str | None
    username: str | None
    profile: str
    storage: str
    source: "Source | None"
    variable: str | None = None


def formatted(
    token: Token,
    subject: Subject,
    format: str,  # noqa: A002 - the name of the flag
    now: datetime,
) -> str:
    """Return *token* in one of the formats of `token show`."""
    match format:
        case "header":
            return f"Authorization: {token.authorization}"
        case "json":
            return json_line({"access_token": token.access_token} | metadata(token, subject, now))
        case "env":
            return f"export XAPI_TOKEN={shell_quoted(token.access_token)}"
        case "exec-credential":
            return json_line(_exec_credential(token))
        case _:
            return token.access_token


def credential_helper_response(token: Token) -> str:
    """Return the response with *token* in the credential helper protocol of Bazel."""
    # https://github.com/EngFlow/credential-helper-spec
    response: dict[str, Any] = {"headers": {"Authorization": [token.authorization]}}
    if token.expires_at:
        response["expires"] = instant(token.expires_at)
    return json_line(response)


def metadata(token: Token | None, subject: Subject, now: datetime) -> dict[str, Any]:
    """Return the metadata of *token*, without the secret."""
    expires_at = token.expires_at if token else None
    return {
        "token_type": token.token_type if token else None,
        "expires_at": instant(expires_at) if expires_at else None,
        "expires_at_epoch": int(expires_at.timestamp()) if expires_at else None,
        "expires_in": max(0, token.seconds_left(now) or 0) if token and expires_at else None,
        "base_url": subject.base_url,
        "username": subject.username,
        "profile": subject.profile,
        "storage": subject.storage,
        "source": subject.source,
    }


def status_table(state: str, token: Token | None, subject: Subject, now: datetime, style: "Style") -> str:
    """Return the token status as a small human-readable table, in the colors of *style*."""
    from xapi_cli.system.layout import Cell, table
    from xapi_cli.system.style import of_state

    rows: list[tuple[str, str | Cell]] = [
        ("state", Cell(state, of_state(state))),
        ("username", subject.username or "-"),
        ("base URL", subject.base_url or "-"),
        ("profile", subject.profile),
        ("expires", until(token.expires_at, now) if token else "-"),
        ("storage", f"environment ({subject.variable})" if subject.variable else subject.storage),
    ]
    return table(rows, style)


def _exec_credential(token: Token) -> dict[str, Any]:
    # https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
    status = {"token": token.access_token}
    if token.expires_at:
        status["expirationTimestamp"] = instant(token.expires_at)
    return {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
