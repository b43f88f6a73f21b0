"""Find the operations of a path: templates such as `/users/{id}` match paths such as `/users/7`."""

import sys
from collections.abc import Iterator, Sequence

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

_MAX_CANDIDATES = 5000  # for a suggestion; each takes 25 µs


class Routes:
    """The operations of *index*, as paths below the path of the base URL, *base_path*.

    If the document's server path starts with the base path, the remainder is a part of each path. If the paths of the
    document start with the base path themselves, it is removed. Otherwise, they are below the base URL.
    """

    def __init__(self, index: Index, base_path: str) -> None:
        self._index = index
        server, base = index.info.server_path, base_path.rstrip("/")
        self._base, self._prefix, self._removed = base, "", 0
        self._is_elsewhere = False  # the server path and the base path differ, so that a proxy may replace one of them
        if f"{server}/".startswith(f"{base}/"):
            self._prefix = server[len(base) :]
        elif all(path.startswith(f"{base}/") for path in index.paths()):
            self._removed = len(base)
        else:
            self._is_elsewhere = not f"{base}/".endswith(f"{server}/")

    def path(self, entry: Entry) -> str:
        """Return PATH for *entry*, as a user writes it."""
        return self._written(entry.path)

    def paths(self, method: str | None = None) -> list[str]:
        """Return the different paths, of operations with *method* only if it is given."""
        return list(map(self._written, self._index.paths(method)))

    def find(self, path: str) -> list[Entry]:
        """Return the operations at *path*; of several templates that match, those of the most specific one.

        Of templates that differ in their query or fragment only, the one that is *path* itself counts.
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
        for listed in self._index.paths():
            template = without_query(listed) if "?" in listed or "#" in listed else listed
            if (rank := _rank(template, below, given)) is not None:
                ranked.setdefault(rank, []).append(listed)
        for rank in sorted(ranked, reverse=True):
            yield [entry for listed in ranked[rank] for entry in self._index.at(listed)]

    def _in_document(self, path: str) -> Iterator[str]:
        """Yield the paths that *path* may be in the document."""
        info = self._index.info
        if self._removed:
            yield self._base + path
        elif path.startswith(self._prefix):
            yield path[len(self._prefix) :]
        servers = (info.server_path, *info.other_servers)
        for full in (self._base + path, path) if self._is_elsewhere else (self._base + path,):
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
        given, listed = segments(path), self._index.paths()
        continued = {template.rpartition("/")[0] for template in listed}
        found = []
        for template in listed:
            parts = self._written(template).split("/")
            is_open = len(parts) < len(given) and is_placeholder(parts[-1]) and template not in continued
            if is_open and all(map(matches, parts, given)):  # compares as many segments as the template has
                found += self._index.at(template)
        return found

    def closest(self, path: str) -> str | None:
        """Return a path that differs from *path* in one misspelled segment, the last slash, or the server path."""
        toggled = path[:-1] if path.endswith("/") else f"{path}/"
        for other in (toggled, self._prefix + path, path.removeprefix(self._base)):
            if other != path and self.find(other):
                return other
        from difflib import get_close_matches

        given, candidates = segments(path), {}
        for template in {tuple(each.split("/")) for each in self.paths()}:
            if len(template) != len(given):
                continue
            different = [number for number, each in enumerate(template) if not matches(each, given[number])]
            if len(different) == 1 and "{" not in template[different[0]]:
                candidates[different[0], template[different[0]]] = template
        for number, word in enumerate(given):
            words = sorted(word for position, word in candidates if position == number)[:_MAX_CANDIDATES]
            if found := get_close_matches(word, words, n=1):
                return _filled(candidates[number, found[0]], path.split("/"), {number})
        return None

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
