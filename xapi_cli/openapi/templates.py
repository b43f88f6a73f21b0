"""Compare path templates such as `/users/{id}` with paths such as `/users/7`."""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from xapi_cli.system.render import printable

PARAMETER = re.compile(r"\{[^{}]*\}")
_MARK = re.compile(r"[*+:=]")
_FRAGMENT = re.compile(r"#|\{[?&#;]")
_ENCODED = re.compile(r"[%/?#\\\s\x00-\x1f\x7f]")


def segments(path: str) -> list[str]:
    """Return the segments of *path*, with their percent-encoding removed."""
    return [unquote(segment) for segment in path.split("/")] if "%" in path else path.split("/")


def without_fragment(template: str) -> str:
    """Return *template* up to a fragment, or a query, fragment or path-style parameter expression (RFC 6570)."""
    found = _FRAGMENT.search(template)
    return template[: found.start()] if found else template


def without_query(template: str) -> str:
    """Return *template* up to a query, fragment or path-style parameter: `/users{?page}`, `/users?page={page}`."""
    return without_fragment(template).partition("?")[0]


def spans_segments(template: str) -> bool:
    """Return whether *template* has a parameter that may contain slashes: `{+path}`, `{path*}`, `{name=users/*}`."""
    may = "+" in template or "*" in template or ":" in template or "=" in template  # much faster than the search
    return may and any(_MARK.search(parameter) for parameter in PARAMETER.findall(template))


def is_placeholder(segment: str) -> bool:
    """Return whether *segment* of a template consists of a parameter."""
    return segment.startswith("{") and segment.endswith("}")


def placeholders(path: str, templates: Iterable[str]) -> list[str]:
    """Return the parameters of *templates* that *path* contains as they are, instead of values."""
    given = set(path.split("/"))
    return [each for template in templates for each in template.split("/") if is_placeholder(each) and each in given]


def parameter_name(placeholder: str) -> str:
    """Return the name in the *placeholder* of a parameter: `path` in `{+path}`, `{path*}` and `{path=a/*}`."""
    return re.split("[=:]", placeholder.strip("{}"))[0].strip("+*./;?&#")


def matches(template: str, segment: str) -> bool:
    """Return whether *segment* is the literal *template*, or begins and ends like it.

    A server may not require the text between two parameters, such as the dot in `{name}.{format}`.
    """
    start, brace, rest = template.partition("{")
    if not brace:
        return template == segment
    end = rest.rpartition("}")[2]
    return len(segment) > len(start) + len(end) and segment.startswith(start) and segment.endswith(end)


def matches_all(template: str, segment: str) -> bool:
    """Return whether *segment* has a value for each parameter of *template*, and all the text around them.

    Both may be whole paths, if parameters may contain slashes. This takes linear time, in contrast to a regular
    expression, for any template.
    """
    start, *others = PARAMETER.split(template) if "{" in template else (template,)
    if not others:  # even with a brace that is not closed
        return template == segment
    *middle, end = others
    position = len(start) + 1  # a value has at least one character
    for text in middle:
        if (position := segment.find(text, position)) < 0:
            return False
        position += len(text) + 1
    return segment.startswith(start) and segment.endswith(end) and len(segment) - len(end) >= position


def as_typed(path: str) -> str:
    """Return *path* as a user writes it: percent-encoded only where another character would have another meaning."""
    return printable("/".join(map(_readable, path.split("/"))))


def _readable(segment: str) -> str:
    try:
        text = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return segment
    return encoded(text)


def encoded(value: str) -> str:
    """Return *value* as it is written for a parameter in a path."""
    return _ENCODED.sub(lambda found: quote(found[0], safe=""), value)
