"""The resources of the test server: maps each request to a response, without a socket."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from xapi_cli.features.sandbox import description
from xapi_cli.features.sandbox.accounts import PROJECTS, Accounts, User

_DETAILS = "/x-api/projects/"
PATHS = (  # method, path, purpose
    ("POST", "/x-api/token", "issues a token"),
    ("GET", "/x-api/me", "the user of the token"),
    ("GET", "/x-api/projects", "three projects; filter with status==active or modifiedSince==TIME"),
    ("GET", "/x-api/projects/{id}", "a project with its owner and teams"),
    ("POST", "/x-api/projects/{id}", "changes fields of a project"),
    ("any", "/x-api/echo", "repeats the request"),
    ("GET", description.PATH, "describes the API, for xapi api load"),
    ("POST", "/sandbox/kill-tokens", "invalidates all tokens"),
)
_ECHO_LIMIT = 1024 * 1024  # bytes; of a longer body, only the length and the digest are returned
_FORM_LIMIT = 64 * 1024  # bytes
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749, section 5.1


class SandboxRequest(NamedTuple):
    """A request: *headers* have lowercase names, and *body* may not have been received yet."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Iterator[bytes]


class Response(NamedTuple):
    """A response whose body is *content* as JSON."""

    status: int
    content: Any
    headers: dict[str, str] = {}  # noqa: RUF012 - it is never changed


def respond(request: SandboxRequest, accounts: Accounts) -> Response:
    """Return the response to *request*."""
    if request.path == "/x-api/token":
        return _only(request, ("POST",), lambda: _token(request, accounts))
    if request.path == "/sandbox/kill-tokens":
        return _only(request, ("POST",), lambda: Response(200, {"killed": accounts.revoke_tokens()}))
    if request.path == description.PATH:
        return _only_get(request, description.DOCUMENT)
    if request.path.startswith("/x-api/"):
        response = _api(request, accounts)
        accounts.count(response.status)
        return response
    return error(404, "not_found", "the API is under /x-api/")


def error(status: int, code: str, description: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error response in the format of RFC 6749, section 5.2."""
    return Response(status, {"error": code, "error_description": description}, headers or {})


def _only(request: SandboxRequest, methods: tuple[str, ...], response: Callable[[], Response]) -> Response:
    if request.method in methods:
        return response()
    allowed = ", ".join(methods)
    return error(405, "invalid_request", "the method is not supported", {"Allow": allowed})


def _only_get(request: SandboxRequest, content: Any) -> Response:
    return _only(request, ("GET", "HEAD"), lambda: Response(200, content))


def _small(body: Iterator[bytes]) -> bytes:
    """Return *body*, or its beginning if it is larger than what is needed."""
    data = b""
    for chunk in body:
        data += chunk
        if len(data) > _FORM_LIMIT:
            break
    return data


def _token(request: SandboxRequest, accounts: Accounts) -> Response:
    """Return the response of the token endpoint (RFC 6749, sections 4.3 and 5)."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return error(400, "invalid_request", "the body must be application/x-www-form-urlencoded", _NO_STORE)
    form = _form(_small(request.body))
    if form is None or not form.keys() >= {"grant_type", "username", "password"}:
        reason = "grant_type, username and password are required, each once and percent-encoded"
        return error(400, "invalid_request", reason, _NO_STORE)
    if form["grant_type"] != "password":
        return error(400, "unsupported_grant_type", "grant_type must be password", _NO_STORE)
    token = accounts.log_in(form["username"], form["password"])
    if token is None:
        return error(400, "invalid_grant", "username and password do not match", _NO_STORE)
    content = {"access_token": token, "token_type": "bearer", "expires_in": accounts.expires_in}
    return Response(200, content, _NO_STORE)


def _form(body: bytes) -> dict[str, str] | None:
    """Return the form fields of *body*, or None if it is not valid or repeats a field (RFC 6749, section 3.2)."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        return None
    return dict(pairs) if len(dict(pairs)) == len(pairs) else None


def _api(request: SandboxRequest, accounts: Accounts) -> Response:
    """Return the resource if the request has a valid token of a user with master rights."""
    scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() != "bearer" or not token:
        return _challenge(401, None, "an Authorization header with a bearer token is required")
    user = accounts.user_of(token.strip())
    if user is None:
        return _challenge(401, "invalid_token", "the token is unknown or has expired")
    if not user.master:
        return _challenge(403, "insufficient_scope", "only users with master rights may use this API")
    return _resource(request, user, accounts)


def _challenge(status: int, code: str | None, description: str) -> Response:
    """Return an error with the challenge of RFC 6750; *code* is None if the request has no token."""
    challenge = 'Bearer realm="x-api"' + (f', error="{code}", error_description="{description}"' if code else "")
    return error(status, code or "unauthorized", description, {"WWW-Authenticate": challenge})


def _resource(request: SandboxRequest, user: User, accounts: Accounts) -> Response:
    if request.path == "/x-api/echo":
        return Response(200, _echo(request))
    if request.path == "/x-api/me":
        return _only_get(request, {"id": user.number, "email": user.email, "name": user.name, "rights": "master"})
    if request.path.startswith(_DETAILS):
        return _project(request, accounts)
    if request.path != "/x-api/projects":
        return error(404, "not_found", "unknown resource")
    query = dict(parse_qsl(request.query))
    status, since = query.get("status"), query.get("modifiedSince", "")
    found = [
        each for each in accounts.projects.values() if status in {None, each["status"]} and each["modified"] > since
    ]
    return _only_get(request, [{name: each[name] for name in PROJECTS[0]} for each in found])


def _project(request: SandboxRequest, accounts: Accounts) -> Response:
    """Return the project in the path, or change it with the JSON object in the body."""
    project = accounts.projects.get(request.path.removeprefix(_DETAILS))
    if project is None:
        return error(404, "not_found", "there is no such project")
    if request.method == "POST":
        try:
            changes = json.loads(_small(request.body))
        except ValueError:
            changes = None
        if not isinstance(changes, dict):
            return error(422, "invalid_request", "the body must be a JSON object")
        return Response(200, accounts.change(project, changes))
    time.sleep(accounts.slow)
    return _only_get(request, project)


def _echo(request: SandboxRequest) -> dict[str, Any]:
    """Return the request as JSON, without its Authorization header."""
    length, digest, start = 0, hashlib.sha256(), b""
    for chunk in request.body:
        length += len(chunk)
        digest.update(chunk)
        if length <= _ECHO_LIMIT:
            start += chunk
    about = {
        "method": request.method,
        "path": request.path,
        "query": parse_qsl(request.query, keep_blank_values=True),
        "headers": {name: value for name, value in request.headers.items() if name != "authorization"},
        "length": length,
        "sha256": digest.hexdigest(),
    }
    return about | (_content(start) if length <= _ECHO_LIMIT else {})


def _content(body: bytes) -> dict[str, Any]:
    """Return *body* as `text` and `json`, each only if it is valid."""
    content: dict[str, Any] = {}
    try:
        content["text"] = body.decode()
        content["json"] = json.loads(body)
        json.dumps(content["json"], ensure_ascii=False, allow_nan=False).encode()  # fails if not serializable
    except (ValueError, RecursionError):
        content.pop("json", None)
    return content
