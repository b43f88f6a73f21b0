"""The link to the next page in `Link` header fields (RFC 8288)."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import urljoin

_LINK = re.compile(r"[ \t,]*<([^>]*)>[ \t]*")
_PARAMETER = re.compile(
    r";[ \t]*([^ \t;,=<]*)[ \t]*"  # the name
    r'(?:=[ \t]*(?:"((?:[^"\\]++|\\.)*+)"?|([^ \t;,<>]*)))?[ \t]*',  # the value: quoted or not, or none
    re.DOTALL,
)
# Relation types in text that is not a link: quoted or not.
_RELATIONS = re.compile(r'(?<![^;,> \t])rel[ \t]*+=[ \t]*+(?:"([^",;<>=]*+)|([^ \t",;<>=]*+))', re.IGNORECASE)
_NOT_IN_TARGET = re.compile(r'[<" \t]')  # characters that no URI contains (RFC 3986)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class MalformedLink(ValueError):
    """The header has the relation `next`, but not in a link."""


class Link(NamedTuple):
    """One link: its target as sent, perhaps relative, and its parameters by lowercase name, the first of each name.

    *end* is the index after it in the header.
    """

    target: str
    parameters: dict[str, str]
    end: int


def next_target(values: Iterable[str], url: str) -> str | None:
    """Return the target of the first link with the relation `next` in the header *values*, None if there is none.

    *url* is that of the response. A link whose anchor is another URL describes another resource (RFC 8288, 3.2), and is
    ignored. Raises MalformedLink if there is no such link, but the relation is in text that is not a link: ignoring it
    would lose pages.
    """
    is_malformed = False
    for value in values:
        end = 0
        for link in links(value):
            is_next = "next" in _relations(link.parameters.get("rel", ""))
            if is_next and _is_anchored_at(url, link.parameters.get("anchor", "")):
                return link.target
            end = link.end
            if _NOT_IN_TARGET.search(link.target):  # without its `>`, it contains parameters
                is_malformed = is_malformed or _has_next(link.target)
        is_malformed = is_malformed or _has_next(value[end:])
    if is_malformed:
        raise MalformedLink
    return None


def links(value: str) -> Iterator[Link]:
    """Yield the links in the header *value*, up to the first text that is not a link (RFC 8288, appendix B.2)."""
    at = 0
    while found := _LINK.match(value, at):
        at = found.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(value, at):
            at = parameter.end()
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if quoted is not None else plain or "")
        yield Link(found[1].strip(" \t"), parameters, at)
        if not value.startswith(",", at):
            return


def _has_next(text: str) -> bool:
    """Return whether *text*, which is not a link, has the relation `next`."""
    return any("next" in _relations(quoted or plain) for quoted, plain in _RELATIONS.findall(text))


def _relations(text: str) -> set[str]:
    """Return the relation types in *text*, the value of the parameter `rel`; some servers use single quotes."""
    return set(text.lower().replace("'", " ").split())


def _is_anchored_at(url: str, anchor: str) -> bool:
    try:
        return not anchor or urljoin(url, anchor) == url
    except ValueError:  # such as a malformed IPv6 address
        return False
