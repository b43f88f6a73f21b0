"""Read an OpenAPI description as data: JSON, or YAML with the extra `yaml`; numbers stay text, as they were written."""

import json
from collections.abc import Callable
from typing import Any

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

MAX_SIZE = 50_000_000  # bytes
MAX_VALUES = 5_000_000  # objects and arrays, so that a document takes at most some 40 times its size in memory
_GZIP = b"\x1f\x8b"
_WHITESPACE = " \t\r\n"


def parse(data: bytes, name: str) -> dict[str, Any]:
    """Return the object in *data*, the content of the document *name*.

    Raises UsageError if *data* is too large, not valid, or not an object.
    """
    shown = printable(name)
    if len(data) > MAX_SIZE:
        raise UsageError(f"{shown} is larger than {MAX_SIZE // 1_000_000} MB", hint="load a smaller description")
    if data.startswith(_GZIP):
        raise UsageError(f"{shown} is compressed with gzip", hint="decompress it with gunzip")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not valid UTF-8 at byte {error.start}", hint="convert it to UTF-8") from None
    start = text.lstrip(_WHITESPACE)[:2]
    if not start or (start[0] == "<" and start != "<<"):  # not a merge key of YAML
        what = "is HTML or XML, not an OpenAPI description" if start else "is empty"
        raise UsageError(f"{shown} {what}", hint="load the description itself, in JSON or YAML")
    document = _from_json(text, shown) if start[0] in "{[" else _from_yaml(text, shown)
    if not isinstance(document, dict):
        what = f"{shown} is not an OpenAPI description: the top level is not an object"
        raise UsageError(what, hint="check that it is the right file")
    return document


def redacted(document: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """Return *document* with *redact* applied to each text, including names; objects and arrays are changed in place.

    A server may repeat the token, and the texts are cut to a length later, which would leave a part of it.
    """
    left: list[Any] = [document]
    seen = {id(document)}  # aliases of YAML
    while left:
        node = left.pop()
        pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
        if isinstance(node, dict):
            node.clear()
        for key, value in pairs:
            node[redact(key) if isinstance(key, str) else key] = redact(value) if isinstance(value, str) else value
            if isinstance(value, dict | list) and id(value) not in seen:
                seen.add(id(value))
                left.append(value)
    return document


def _from_json(text: str, shown: str) -> object:
    if text.count("{") + text.count("[") > MAX_VALUES:
        raise UsageError(f"{shown} has more than {MAX_VALUES:,} values", hint="load a smaller description")
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except RecursionError:
        raise UsageError(f"{shown} is nested too deeply", hint="check that it is an OpenAPI description") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            what = f"{shown} is not one JSON document: another one begins at line {error.lineno}"
            raise UsageError(what, hint="name a file with a single description") from None
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{shown} is not valid JSON at {where}", hint="correct it") from None


def _from_yaml(text: str, shown: str) -> object:
    try:
        from xapi_cli.openapi.yaml_documents import InvalidYAML, read
    except ImportError:
        from xapi_cli.system import installation

        raise UsageError(
            f"{shown} is not valid JSON, and YAML support is not installed",
            hint=f"{installation.how_to_add('yaml')}, or convert the description to JSON",
        ) from None
    try:
        return read(text, max_values=MAX_VALUES)
    except InvalidYAML as error:
        raise UsageError(f"{shown} is not valid YAML: {printable(str(error))}", hint="correct it") from None
