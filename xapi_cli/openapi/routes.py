"""Find the operations of a path: templates such as `/users/{id}` match paths such as `/users/7`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from xapi_cli.openapi.index import Entry, Index
from xapi_cli.openapi.templates import (
    PARAMETER,
    is_placeholder,
    matches,
    matches_all,
    segments,
    spans_segments,
    without_query,
)

_OVERHEAD = 50  # characters; the comparison of the shortest template takes as long as this many further ones
# For a suggestion, so that it takes milliseconds at most. A word takes 25 µs, the comparison of a segment 0.2 µs.
_MAX_COMPARED, _MAX_WORDS = 20_000, 200
_MAX_LENGTH, _MAX_DIFFERENCE = 40, 2  # characters; the time for a word is quadratic in its length


class TooManyTemplates(Exception):
    """The templates that may match a path are longer together than the budget."""


class Routes:
    """The operations of *index*, as paths below the path of the base URL, *base_path*.

    If the document's server path starts with the base path, the remainder is a part of each path. If the paths of the
    document start with the base path themselves, it is removed. Otherwise, they are below the base URL.

    With *budget*, a number of characters, methods that compare longer templates with a path raise TooManyTemplates.
    Templates that begin differently do not count.
    """

    def __init__(self, index: Index, base_path: str, budget: int = sys.maxsize) -> None:
        self._index, self._budget = index, budget
        server, base = index.info.server_path, base_path.rstrip("/")
        self._base, self._prefix, self._removed = base, "", 0
        self._may_be_proxied = False  # a proxy may replace the server path with the base path, because they differ
        if f"{server}/".startswith(f"{base}/"):
            self._prefix = server[len(base) :]
        elif all(path.startswith(f"{base}/") for path in index.paths()):
            self._removed = len(base)
        else:
            self._may_be_proxied = not f"{base}/".endswith(f"{server}/")

    def path(self, entry: Entry) -> str:
        """Return PATH for *entry*, as a user writes it."""
        return self._written(entry.path)

    def paths(self, method: str | None = None) -> list[str]:
        """Return the different paths, of operations with *method* only if it is given."""
        return list(map(self._written, self._index.paths(method)))

    def find(self, path: str) -> list[Entry]:
        """Return the operations at *path*; of several templates that match, those of the most specific one.

        If templates differ only in query or fragment, prefer the one that equals *path*.
        """
        found = next(self.matches(path), [])
        return [entry for entry in found if self.path(entry) == path] or found

    def matches(self, path: str) -> Iterator[list[Entry]]:
        """Yield the operations at *path*, once for each template that matches; the most specific one comes first.

        Templates that are equally specific, such as `/users/{id}` and `/users/{name}`, count as one.
        """
        for candidate in dict.fromkeys(self._in_document(path)):
            yield from self._matches(candidate)

    def _matches(self, path: str) -> Iterator[list[Entry]]:
        below = path.partition("?")[0].partition("#")[0]
        given = segments(below)
        ranked: dict[tuple[int, ...], list[str]] = {}
        for listed in _beginning_like(self._index.paths(), below, "/".join(given)):
            template = without_query(listed) if "?" in listed or "#" in listed else listed
            if template.count("/") != len(given) - 1 and not spans_segments(template):
                continue
            self._spend(template)
            if (rank := _rank(template, below, given)) is not None:
                ranked.setdefault(rank, []).append(listed)
        for rank in sorted(ranked, reverse=True):
            yield [entry for listed in ranked[rank] for entry in self._index.at(listed)]

    def _spend(self, template: str) -> None:
        self._budget -= _OVERHEAD + len(template)
        if self._budget < 0:
            raise TooManyTemplates

    def _in_document(self, path: str) -> Iterator[str]:
        """Yield the paths that *path* may be in the document."""
        info = self._index.info
        if self._removed:
            yield self._base + path
        elif path.startswith(self._prefix):
            yield path[len(self._prefix) :]
        servers = (info.server_path, *info.other_server_paths)
        for full in (self._base + path, path) if self._may_be_proxied else (self._base + path,):
            for server in servers:
                if (below := _below(server, full)) is not None:
                    yield below

    def _written(self, path: str) -> str:
        return self._prefix + path[self._removed :]

    def find_prefix(self, path: str) -> list[Entry]:
        """Return the operations with a parameter at the end of their template that takes the rest of *path*.

        OpenAPI does not allow a slash in a parameter, but many APIs do: `/contents/{path}`. A template that others
        continue, such as `/users/{id}/keys`, has no such parameter.
        """
        given, found = segments(path), []
        begins = "/".join(given).startswith
        for template in self._index.paths():
            written = self._written(template)
            is_short = written.endswith("}") and written.count("/") < len(given) - 1
            if is_short and begins(written.partition("{")[0]):
                self._spend(written)
                parts = written.split("/")
                if is_placeholder(parts[-1]) and all(map(matches, parts, given)):  # as many as the template has
                    found.append(template)
        continued = {each.rpartition("/")[0] for each in self._index.paths()} if found else set()
        return [entry for template in found if template not in continued for entry in self._index.at(template)]

    def closest(self, path: str) -> str | None:
        """Return a path that differs from *path* in one misspelled segment, the last slash, or the server path."""
        toggled = path[:-1] if path.endswith("/") else f"{path}/"
        for other in (toggled, self._prefix + path, path.removeprefix(self._base)):
            if other != path and self.find(other):
                return other
        from difflib import get_close_matches

        given, candidates = segments(path), self._candidates(path)
        for number, word in enumerate(given):
            words = [word for position, word in candidates if position == number]
            if found := get_close_matches(word, words, n=1):
                return _filled(candidates[number, found[0]].split("/"), path.split("/"), {number})
        return None

    def _candidates(self, path: str) -> dict[tuple[int, str], str]:
        """Return paths that differ from *path* in one segment by position and segment; of very many, the first ones."""
        given, found = segments(path), dict[tuple[int, str], str]()
        alike = (each for each in self.paths() if each.count("/") == len(given) - 1)
        for each in islice(alike, _MAX_COMPARED // len(given)):
            template = each.split("/")
            different = [number for number, word in enumerate(template) if not matches(word, given[number])]
            if len(different) == 1 and _may_be_misspelled(template[different[0]], given[different[0]]):
                found[different[0], template[different[0]]] = each
                if len(found) == _MAX_WORDS:
                    break
        return found

    def completions(self, incomplete: str, method: str | None = None) -> Iterator[str]:
        """Yield the paths that begin with *incomplete*, whose complete segments may be values of parameters.

        A parameter that has no value yet is shown as in the template.
        """
        *done, last = incomplete.split("/")
        literal: dict[str, None] = {}
        open_: dict[str, None] = {}
        for path in self.paths(method):
            if path.startswith(incomplete):
                literal[path] = None
                continue
            if path.count("/") < len(done):
                continue
            template = path.split("/")
            if not all(map(matches, template, done)):
                continue
            segment, rest = template[len(done)], template[len(done) + 1 :]
            if segment.startswith(last):
                literal["/".join((*done, segment, *rest))] = None
            elif matches(segment, last):
                open_["/".join((*done, last, *rest))] = None
        yield from literal or open_


def _below(server: str, path: str) -> str | None:
    """Return the rest of *path* below *server*, a path that may contain parameters; None if it is elsewhere."""
    parts, given = server.split("/"), path.split("/")
    if len(given) <= len(parts) or not all(map(matches, parts, segments("/".join(given[: len(parts)])))):
        return None
    return "/" + "/".join(given[len(parts) :])


def _beginning_like(templates: Iterable[str], path: str, decoded: str) -> Iterator[str]:
    """Yield those *templates* whose literal start is that of *path*, also *decoded*; no other can match."""
    starts, decoded_starts = path.startswith, decoded.startswith  # this loop decides what a request costs
    for template in templates:
        literal = template.partition("{")[0]
        if starts(literal) or decoded_starts(literal) or "?" in template or "#" in template or "%" in template:
            yield template


def _may_be_misspelled(word: str, given: str) -> bool:
    """Return whether *given* may be *word* with a typing error."""
    is_short = len(word) <= _MAX_LENGTH and abs(len(word) - len(given)) <= _MAX_DIFFERENCE
    return is_short and "{" not in word


def _rank(template: str, path: str, given: Sequence[str]) -> tuple[int, ...] | None:
    """Return how specific *template* is for *path* with the segments *given*; None if it does not match.

    A template that is written as it is comes first, then one with early literal text: `{name}:cancel`.
    """
    if template.count("/") == len(given) - 1:
        parts = segments(template)
        if all(map(matches, parts, given)):
            return (parts == given, all(map(matches_all, parts, given)), *map(_literal_length, parts))
    if spans_segments(template) and matches_all(template, path):
        return (-1, len(PARAMETER.sub("", template)))
    return None


def _literal_length(segment: str) -> int:
    """Return the length of the text around the parameters of *segment*, or a larger number if it has none."""
    return len(PARAMETER.sub("", segment)) if "{" in segment else sys.maxsize


def _filled(template: Sequence[str], given: Sequence[str], kept: set[int]) -> str:
    """Return *template* with the segments *given* for its parameters, except at the positions *kept*."""
    filled = (each if n in kept or "{" not in each else given[n] for n, each in enumerate(template))
    return "/".join(filled)
