"""The messages between xapi and the keeper: a header of fixed length, then a body of limited length.

The first byte of a key says what it stands for: `a`, the record of an account with storage `agent`; `c`, a record that
is cached from the keyring; `f`, a login failure of an account, which the keeper erases after FAILURE_LIFETIME.

A client sends one request per connection and receives one response. The connection of a LOCK stays open: the lock is
held until it is closed. All numbers are unsigned and in network byte order.

    request     magic (4)  operation (1)  key (33)  generation (16)  length of the body (4)
    response    magic (4)  status (1)               generation (16)  length of the body (4)
"""

import re
from math import isfinite
from struct import Struct
from struct import error as StructError  # noqa: N812 - its own name is lowercase
from typing import Any, Literal, NamedTuple

from xapi_cli.tokens import MAX_RECORD, Identity, sha256

MAX_BODY = MAX_RECORD + 1024  # bytes; a cached record has a tag before its text
MAX_RECORDS = 256
MAX_FAILURE = 64 * 1024  # bytes
FAILURE_LIFETIME = 60.0  # seconds
ANY = bytes(16)  # as the expected generation of a PUT: store the record in any case

# Operations. A generation changes when the key is erased, and only then.
GET = b"G"  # the record of a key and its generation
PUT = b"P"  # stores the body as the record of a key, if the generation is the expected one
ERASE = b"E"  # erases the record of a key, and changes its generation
LIST = b"L"  # what is held, without the records and the failures
TIME = b"T"  # the keeper's monotonic clock, which the clients share
LOCK = b"K"  # the response comes when the lock on the key is acquired
STOP = b"S"  # erases everything and ends the keeper

# Statuses
OK = b"+"
ABSENT = b"0"  # GET, ERASE: the key has no body
CONFLICT = b"!"  # PUT: the key was erased since the expected generation
FULL = b"F"  # PUT: the limit of records is reached, or no memory is left; LOCK: the limit of waiting processes
INVALID = b"?"  # the request is not valid; its sender is probably another version of xapi

_MAGIC = b"XK1\n"
_REQUEST = Struct("!4sc33s16sI")
_RESPONSE = Struct("!4sc16sI")
_HELD = Struct("!33sI?I")
_TIME = Struct("!d")
REQUEST_SIZE = _REQUEST.size
RESPONSE_SIZE = _RESPONSE.size

_OPERATIONS = frozenset({GET, PUT, ERASE, LIST, TIME, LOCK, STOP})
_STATUSES = frozenset({OK, ABSENT, CONFLICT, FULL, INVALID})
_KEY = re.compile(rb"[acf][0-9a-f]{32}")
_NO_KEY = bytes(33)


class Malformed(ValueError):
    """The bytes are not a valid message."""


class Request(NamedTuple):
    """The header of a request; *length* bytes of body follow it."""

    operation: bytes
    key: bytes = _NO_KEY
    generation: bytes = ANY
    length: int = 0


class Response(NamedTuple):
    """The header of a response; *length* bytes of body follow it."""

    status: bytes
    generation: bytes = ANY
    length: int = 0


class Held(NamedTuple):
    """A record that the keeper holds: its *key*, its *size* in bytes, and how many *seconds* ago it was stored.

    If *is_locked*, its memory is never written to swap space.
    """

    key: bytes
    size: int
    is_locked: bool
    seconds: int


def key_of(identity: Identity, space: Literal["a", "c"] = "a") -> bytes:
    """Return the key of the account *identity* in the storage `agent` (a) or in the cache of the keyring (c)."""
    return f"{space}{identity.key}".encode()


def failure_key(identity: Identity, kind: str) -> bytes:
    """Return the key of the login failure of the account *identity* that is of *kind*."""
    return f"f{sha256(f'{identity.key} {kind}')[:32]}".encode()


def is_cached(key: bytes) -> bool:
    """Return whether *key* is that of a record which the keyring contains too."""
    return key.startswith(b"c")


def is_failure(key: bytes) -> bool:
    """Return whether *key* is that of a login failure."""
    return key.startswith(b"f")


def pack_request(request: Request) -> bytes:
    """Return the header *request* as bytes."""
    return _REQUEST.pack(_MAGIC, *request)


def pack_response(response: Response) -> bytes:
    """Return the header *response* as bytes."""
    return _RESPONSE.pack(_MAGIC, *response)


def parse_request(data: bytes | bytearray) -> Request:
    """Return the header in *data*; raise Malformed if it is not a valid one."""
    request = Request._make(_fields(_REQUEST, data))
    if request.operation not in _OPERATIONS:
        raise Malformed("operation")
    has_key = request.operation not in {LIST, TIME, STOP}
    if not (_KEY.fullmatch(request.key) if has_key else request.key == _NO_KEY):
        raise Malformed("key")
    limit = 0 if request.operation != PUT else MAX_FAILURE if is_failure(request.key) else MAX_BODY
    if request.length > limit or (request.operation == PUT and request.length == 0):
        raise Malformed("length of the body")
    return request


def parse_response(data: bytes | bytearray) -> Response:
    """Return the header in *data*; raise Malformed if it is not a valid one."""
    response = Response._make(_fields(_RESPONSE, data))
    if response.status not in _STATUSES or response.length > MAX_BODY:
        raise Malformed("status or length")
    return response


def pack_held(held: list[Held]) -> bytes:
    """Return the body of a response to LIST."""
    return b"".join(_HELD.pack(*each) for each in held)


def parse_held(body: bytes) -> list[Held]:
    """Return what the *body* of a response to LIST contains; raise Malformed if it is not valid."""
    if len(body) % _HELD.size:
        raise Malformed("length of the list")
    return [Held(*fields) for fields in _HELD.iter_unpack(body)]


def pack_time(seconds: float) -> bytes:
    """Return the body of a response to TIME."""
    return _TIME.pack(seconds)


def parse_time(body: bytes) -> float:
    """Return the seconds that the *body* of a response to TIME contains; raise Malformed if it is not valid."""
    if len(body) != _TIME.size or not isfinite(seconds := _TIME.unpack(body)[0]):
        raise Malformed("time")
    return float(seconds)


def _fields(layout: Struct, data: bytes | bytearray) -> list[Any]:
    """Return the fields after the magic of the header in *data*."""
    try:
        magic, *fields = layout.unpack(data)
    except StructError as error:
        raise Malformed("length") from error
    if magic != _MAGIC:
        raise Malformed("magic")
    return fields
