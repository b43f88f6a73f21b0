"""The words of an `xapi request` command that calls an operation."""

import re
from collections.abc import Iterator

from xapi_cli.openapi.operations import Body, Operation, Parameter
from xapi_cli.openapi.templates import PARAMETER, encoded, parameter_name, without_fragment

_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9]+")
_SEPARATOR = re.compile(r"([\\=:@])")
_BRACKET = re.compile(r"([\[\]])")
_JSON = {"integer": "1", "number": "1", "boolean": "true", "object": "{}"}
_SCALAR = re.compile(r"true|false|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SCALARS = ("integer", "number", "boolean")
_NOT_AN_ITEM = re.compile(r"-|.*[/?]")  # a name; with a dash at its start, it would be read as an option of xapi
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_MEDIA_TYPE = re.compile(rf"{_TOKEN.pattern}/{_TOKEN.pattern}(?:\s*;.*)?")  # RFC 9110, 8.3.1
_PART_OF_SEPARATOR = ("=", "@", ":", "/", "\\")  # such a value would be read as a file, or as another ITEM


def example(operation: Operation, path: str) -> list[str]:
    """Return an example call of *operation* at *path*, as words; a name in capitals stands for a value."""
    fields = _fields(operation)
    default = "POST" if fields or _needs_text(operation, fields) else "GET"
    words = ["xapi", "request", *([] if operation.method == default else [operation.method]), _path(operation, path)]
    for each in operation.parameters_in("query"):
        if each.required and "object" not in each.types:  # its members may be parameters
            words += _query_words(each)
    for each in _required_tokens(operation, "header"):
        words += _header_words(each)
    if cookies := [f"{each.name}={_value(each)}" for each in _required_tokens(operation, "cookie")]:
        words.append(f"Cookie:{'; '.join(cookies)}")
    return [*words, *_body_words(operation, fields)]


def _path(operation: Operation, path: str) -> str:
    """Return the template *path* with values for its parameters."""
    known = {parameter.name: parameter for parameter in operation.parameters_in("path")}

    def value(match: re.Match[str]) -> str:
        name = parameter_name(match[0])
        return encoded(_value(known.get(match[0][1:-1]) or known.get(name) or Parameter(name, "path", "string")))

    return PARAMETER.sub(value, without_fragment(path))


def _fields(operation: Operation) -> list[Parameter]:
    """Return the fields that the example sends: those that are required, or else the first one; none if no ITEM can.

    A multipart body needs a file, because xapi sends a form without one urlencoded.
    """
    body = operation.body
    if body is None or not (body.is_form or body.is_json):
        return []
    fields = operation.parameters_in("body")
    files = [each for each in fields if each.is_file] if body.is_multipart else []
    required = [each for each in fields if each.required or each.suggested]
    if not all(map(_is_item, required)):
        return []
    chosen = required or list(filter(_is_item, fields))[:1]
    return chosen if any(each in files for each in chosen) else chosen + list(filter(_is_item, files))[:1]


def _needs_text(operation: Operation, fields: list[Parameter]) -> bool:
    return operation.body is not None and not fields


def _body_words(operation: Operation, fields: list[Parameter]) -> Iterator[str]:
    body = operation.body
    if body is None:
        return
    if not fields:
        yield from ("-d", "@FILE")
        if (body.content_type or body.is_form) and _MEDIA_TYPE.fullmatch(body.media_type):
            yield f"Content-Type:{body.media_type}"
        return
    if body.content_type and _MEDIA_TYPE.fullmatch(body.content_type):
        yield f"Content-Type:{body.content_type}"
    if body.is_form and not any(each.is_file for each in fields):
        yield "--form"
    for each in fields:
        yield _item(each, body)


def _item(field: Parameter, body: Body) -> str:
    separator = field.separator(is_form=body.is_form)
    value = {"@": "FILE", ":=": _json(field)}.get(separator) or _value(field)
    name = _name(field) if body.is_form else _BRACKET.sub(r"\\\1", _name(field))  # in JSON, brackets are a path
    return f"{name}{separator}{value}"


def _json(field: Parameter) -> str:
    kind = next(iter(field.types), "")
    values = [value for value in field.values if _SCALAR.fullmatch(value)] if kind in _SCALARS else []
    return values[0] if values else _JSON.get(kind, "[]")


def _query_words(parameter: Parameter) -> list[str]:
    return [f"{_name(parameter)}=={_value(parameter)}"] if _is_item(parameter) else []


def _header_words(parameter: Parameter) -> list[str]:
    word = f"{parameter.name}:{_value(parameter)}"
    return [word] if _is_item(parameter) else ["-H", word]


def _required_tokens(operation: Operation, location: str) -> list[Parameter]:
    """Return the required headers or cookies of *operation*, without those whose names are not valid."""
    return [each for each in operation.parameters_in(location) if each.required and _TOKEN.fullmatch(each.name)]


def _is_item(parameter: Parameter) -> bool:
    return bool(parameter.name) and _NOT_AN_ITEM.match(parameter.name) is None


def _name(parameter: Parameter) -> str:
    return _SEPARATOR.sub(r"\\\1", parameter.name)


def _value(parameter: Parameter) -> str:
    if unambiguous := [each for each in parameter.values if not each.startswith(_PART_OF_SEPARATOR)]:
        return unambiguous[0]
    kind = next(iter(parameter.types), "")
    if parameter.is_json_text:
        return "[]" if kind.startswith("JSON (array") else "{}"
    if kind.removeprefix("array of ") in _SCALARS:
        return _JSON[kind.removeprefix("array of ")]
    return _NOT_IN_A_NAME.sub("_", parameter.name.upper()).strip("_") or "VALUE"
