"""The URL of a Redis server: `redis://`, `rediss://` (with TLS) or `unix://`."""

from typing import NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.http.urls import InvalidURL, host_and_port, reject_control_characters, with_port

_PORT = 6379
_LARGEST_DATABASE = 65_535
_HINT = "write it as redis://HOST:PORT/DATABASE, rediss://HOST for TLS, or unix:///PATH"


class Address(NamedTuple):
    """Where a Redis server is, and as which user to connect; *path* is that of a Unix socket, else empty."""

    host: str
    port: int
    path: str
    is_tls: bool
    username: str
    password: str
    database: int

    def __str__(self) -> str:
        if self.path:
            return self.path
        return with_port(self.host, self.port)

    @property
    def server_url(self) -> str:
        """The URL of the server and the database, without the username and the password."""
        if self.path:
            from urllib.parse import quote

            return f"unix://{quote(self.path, errors='surrogateescape')}?db={self.database}"
        return f"{'rediss' if self.is_tls else 'redis'}://{self}/{self.database}"

    def __repr__(self) -> str:
        return f"Address({self})"  # without the password


def parse(url: str) -> Address:
    """Return the address in *url*; raise UsageError, which does not contain the URL, if it is not valid."""
    try:
        reject_control_characters(url)
        scheme, separator, rest = url.partition("://")
        if not separator or scheme.lower() not in {"redis", "rediss", "unix"}:
            raise InvalidURL("does not start with redis://, rediss:// or unix://", _HINT)
        return _unix(rest) if scheme.lower() == "unix" else _network(rest, is_tls=scheme.lower() == "rediss")
    except InvalidURL as error:
        raise UsageError(f"the Redis URL {error}", hint=error.hint or _HINT) from None


def _network(rest: str, *, is_tls: bool) -> Address:
    if "?" in rest or "#" in rest:
        hint = "omit options such as ssl_cert_reqs, and write ? and # in a password as %3F and %23"
        raise InvalidURL("has a query or a fragment, which is not supported", hint)
    authority, _, database = rest.partition("/")
    user, _, server = authority.rpartition("@")
    host, port = host_and_port(server)
    return Address(host, port or _PORT, "", is_tls, *_user(user), _database(database))


def _unix(rest: str) -> Address:
    path, _, query = rest.partition("?")
    user = ""
    if not path.startswith("/"):
        user, _, path = path.partition("@/")
        path = f"/{path}"
    if path == "/" or (query and not query.startswith("db=")):
        raise InvalidURL("has no path of a socket, or an option other than db", "write it as unix:///PATH?db=DATABASE")
    return Address("", 0, _decoded(path), False, *_user(user), _database(query.removeprefix("db=")))


def _user(text: str) -> tuple[str, str]:
    username, _, password = text.partition(":")
    return _decoded(username), _decoded(password)


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text, errors="surrogateescape")


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _LARGEST_DATABASE):
        raise InvalidURL(f"has an invalid database; it must be a number from 0 to {_LARGEST_DATABASE}", _HINT)
    return int(text)
