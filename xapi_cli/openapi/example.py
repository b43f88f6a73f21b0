"""The words of an `xapi request` command that calls an operation."""

import re
from collections.abc import Iterator

from xapi_cli.openapi.operations import Body, Operation, Parameter
from xapi_cli.openapi.templates import PARAMETER, encoded, parameter_name, without_fragment

_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9]+")
_SEPARATOR = re.compile(r"([\\=:@])")
_JSON = {"integer": "1", "number": "1", "boolean": "true", "object": "{}"}
_NUMBERS = ("integer", "number")
_NOT_IN_AN_ITEM = re.compile(r"[/?]")  # in its name
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_PART_OF_SEPARATOR = ("=", "@", ":", "/", "\\")  # such a value would be read as a file, or as another ITEM


def example(operation: Operation, path: str) -> list[str]:
    """Return an example call of *operation* at *path*, as words; a name in capitals stands for a value."""
    fields = _fields(operation)
    default = "POST" if fields or _needs_text(operation, fields) else "GET"
    words = ["xapi", "request", *([] if operation.method == default else [operation.method]), _path(operation, path)]
    for each in operation.parameters_in("query"):
        if each.required:
            words += _query_words(each)
    words += [
        f"{each.name}:{_value(each)}"
        for each in operation.parameters_in("header")
        if each.required and _is_token(each.name)
    ]
    if cookies := [f"{each.name}={_value(each)}" for each in operation.parameters_in("cookie") if each.required]:
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
    """Return the fields that the example sends: those that are required, or else the first one; none if no ITEM can."""
    if operation.body is None or not (operation.body.is_form or operation.body.is_json):
        return []
    fields = operation.parameters_in("body")
    chosen = [each for each in fields if each.required] or fields[:1]
    return chosen if all(each.name and not _NOT_IN_AN_ITEM.search(each.name) for each in chosen) else []


def _needs_text(operation: Operation, fields: list[Parameter]) -> bool:
    return operation.body is not None and not fields


def _body_words(operation: Operation, fields: list[Parameter]) -> Iterator[str]:
    body = operation.body
    if body is None:
        return
    if not fields:
        yield from ("-d", "@FILE")
        if body.content_type or body.is_form:
            yield f"Content-Type:{body.media_type}"
        return
    if body.content_type:
        yield f"Content-Type:{body.content_type}"
    if body.is_form and not any(each.type == "file" for each in fields):
        yield "--form"
    for each in fields:
        yield _item(each, body)


def _item(field: Parameter, body: Body) -> str:
    separator = field.separator(is_form=body.is_form)
    value = {"@": "FILE", ":=": _JSON.get(field.type.removeprefix("null or ").partition(" or ")[0], "[]")}.get(
        separator
    ) or _value(field)
    return f"{_name(field)}{separator}{value}"


def _query_words(parameter: Parameter) -> list[str]:
    if parameter.name and not _NOT_IN_AN_ITEM.search(parameter.name):
        return [f"{_name(parameter)}=={_value(parameter)}"]
    return ["-q", f"{parameter.name}={_value(parameter)}"] if parameter.name and "=" not in parameter.name else []


def _is_token(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _name(parameter: Parameter) -> str:
    return _SEPARATOR.sub(r"\\\1", parameter.name)


def _value(parameter: Parameter) -> str:
    if unambiguous := [each for each in parameter.values if not each.startswith(_PART_OF_SEPARATOR)]:
        return unambiguous[0]
    if parameter.type in _NUMBERS:
        return "1"
    return _NOT_IN_A_NAME.sub("_", parameter.name.upper()).strip("_") or "VALUE"
