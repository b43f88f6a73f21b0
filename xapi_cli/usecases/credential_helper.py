"""Give the token to a program that asks for the credentials of a URL, such as Bazel."""

import json
import re
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import UsageError
from xapi_cli.http import authorization, urls
from xapi_cli.system.render import instant, json_line
from xapi_cli.tokens import Token
from xapi_cli.usecases.access_token import min_ttl_of, usable_token

if TYPE_CHECKING:
    from typing import BinaryIO

    from xapi_cli.runtime import Runtime

_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)
_MAX_SIZE = 64 * 1024  # bytes
_HINT = 'write {"uri": "https://…"} to stdin'


def get(runtime: "Runtime", *, min_ttl: str | None) -> None:
    """Print the header for the URL that the request on stdin names, with a token that is valid for *min_ttl*.

    Raises UsageError, without a login, if the request is not valid or its URL is not on the origin of the base URL, and
    the errors of a login.
    """
    seconds = min_ttl_of(min_ttl)
    base_url = runtime.base_url
    _check_origin(_requested_url(runtime.terminal.stdin()), base_url)
    token, _ = usable_token(runtime, min_ttl=seconds)
    runtime.terminal.print(_response(token))


def _requested_url(stdin: "BinaryIO | None") -> str:
    """Return the URL in the request; other members are ignored, as the protocol requires."""
    try:
        request = _request(stdin) if stdin else None
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror}", hint=_HINT) from error
    url = request.get("uri") if isinstance(request, dict) else None
    if not isinstance(url, str):
        raise UsageError("the request on stdin is not a JSON object with a uri", hint=_HINT)
    return url


def _request(stdin: "BinaryIO") -> Any:
    """Return the value on *stdin*, or None if it is not valid; do not wait for a program that keeps the pipe open."""
    data = b""
    while received := stdin.read(_MAX_SIZE + 1 - len(data)):
        data += received
        if len(data) > _MAX_SIZE:
            raise UsageError("the request on stdin is larger than 64 KiB", hint=_HINT)
        if data.rstrip().endswith(b"}") and (request := _parsed(data)) is not None:
            return request
    return None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _check_origin(url: str, base_url: str) -> None:
    """Raise UsageError, which does not quote *url*, unless it is an absolute URL on the origin of *base_url*."""
    try:
        if _ABSOLUTE.match(url) and urls.same_origin(urls.resolve(base_url, url), base_url):
            return
    except UsageError:
        pass  # raised below
    raise UsageError(
        f"the requested uri is not an absolute URL on the origin of the base URL {base_url}",
        hint="configure the credential helper only for the host of the API",
    )


def _response(token: Token) -> str:
    """Return the response with *token* in the credential helper protocol of Bazel."""
    # https://github.com/EngFlow/credential-helper-spec
    response: dict[str, Any] = {"headers": {authorization.NAME: [authorization.value(token)]}}
    if token.expires_at:
        response["expires"] = instant(token.expires_at)
    return json_line(response)
