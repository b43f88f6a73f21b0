"""Find the operations of a path: templates such as `/users/{id}` match paths such as `/users/7`."""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from xapi_cli.openapi.index import Entry, Index, has_method
from xapi_cli.openapi.templates import (
    PARAMETER,
    is_placeholder,
    matches,
    matches_all,
    segments,
    spans_segments,
    without_query,
)

# What the parts of a lookup take, in the unit of the budget: as long as the comparison of this many characters.
_OVERHEAD, _STEP = 50, 250
# For a suggestion, so that it takes milliseconds at most. A word takes 25 µs, the comparison of its length 1 µs.
_MAX_COMPARED, _MAX_WORDS, _MAX_SIMILAR = 2000, 200, 3
_MAX_LENGTH, _MAX_DIFFERENCE = 40, 2  # characters; the time for a word is quadratic in its length
# A part of a template after which the segments of a path may differ from those of the template.
_OPEN = re.compile(r"[?#%]|\{[^{}]*(?:[*+:=&;]|$)")
INTERACTIVE_BUDGET = 250_000  # characters, which take 5 ms: for a lookup that must not delay the user


class TooManyTemplates(Exception):
    """The lookup of a path takes longer than the budget."""


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
        elif index.paths.all_begin_with(f"{base}/"):
            self._removed = len(base)
        else:
            self._may_be_proxied = not f"{base}/".endswith(f"{server}/")

    def path(self, entry: Entry) -> str:
        """Return PATH for *entry*, as a user writes it."""
        return self._written(entry.path)

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
        for listed in self._candidates(below, given):
            template = without_query(listed) if "?" in listed or "#" in listed else listed
            if (rank := _rank(template, below, given)) is not None:
                ranked.setdefault(rank, []).append(listed)
        for rank in sorted(ranked, reverse=True):
            yield self._index.at(*ranked[rank])

    def _candidates(self, path: str, given: list[str]) -> dict[str, None]:
        """Return the templates that may match *path*, with the decoded segments *given*."""
        found: dict[str, None] = {}
        for way in (given, path.split("/")) if "%" in path else (given,):
            if way[0] or len(way) == 1:
                continue
            opened: dict[str, None] = {}
            above = self._levels("/", way[1:-1], opened)[-1]
            found |= dict.fromkeys(each + end for each in above for end in self._ends(each, way[-1], opened))
            for start in opened:
                for template, _ in self._index.paths.lines(start):
                    self._spend(_OVERHEAD + len(template))
                    found[template] = None
        return found

    def _levels(self, start: str, given: Sequence[str], opened: dict[str, None] | None = None) -> list[list[str]]:
        """Return for each of the segments *given* the starts of templates before it, and in the end those after all.

        They begin with *start* and end with a slash. Those whose other segments may differ are added to *opened*.
        """
        levels = [[start]]
        for segment in given:
            below = (each + child for each in levels[-1] for child in self._children(each, segment, opened))
            levels.append(list(dict.fromkeys(below)))
        return levels

    def _ends(self, above: str, segment: str, opened: dict[str, None] | None = None) -> Iterator[str]:
        """Yield the last segments of templates that begin with *above*, and that match *segment*."""
        literal, children = self._next(above, segment, opened)
        if literal and self._index.paths.fields(above + segment):
            yield segment
        yield from (child for child in children if not child.endswith("/") and matches(child, segment))

    def _children(self, above: str, segment: str, opened: dict[str, None] | None = None) -> Iterator[str]:
        """Yield the segments of templates that begin with *above*, match *segment*, and are not the last ones."""
        literal, children = self._next(above, segment, opened)
        if literal and self._index.paths.contains(f"{above}{segment}/"):
            yield f"{segment}/"
        yield from (child for child in children if child.endswith("/") and matches(child[:-1], segment))

    def _next(self, above: str, segment: str, opened: dict[str, None] | None) -> tuple[bool, list[str]]:
        """Return whether *segment* may be literal after *above*, and the segments there that are not only literal."""
        self._budget -= _STEP
        paths, found = self._index.paths, list[str]()
        end = min((at for mark in f"/{paths.marks}" if (at := segment.find(mark)) >= 0), default=len(segment))
        for child in paths.templates(above, segment[:end]):
            self._spend(_OVERHEAD + len(child))
            found.append(child)
            if opened is not None and _OPEN.search(child):
                opened[above + child] = None
        return end == len(segment), found

    def _spend(self, characters: int) -> None:
        self._budget -= characters
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

    @property
    def _start(self) -> str:
        """What all templates begin with."""
        return f"{self._base[: self._removed]}/"

    def _after_prefix(self, given: Sequence[str]) -> Sequence[str]:
        """Return the segments *given* of a path without those of the prefix; none if they differ."""
        prefix = self._prefix.split("/")
        return given[len(prefix) :] if len(given) > len(prefix) and all(map(matches, prefix, given)) else ()

    def find_prefix(self, path: str) -> list[Entry]:
        """Return the operations with a parameter at the end of their template that takes the rest of *path*.

        OpenAPI does not allow a slash in a parameter, but many APIs do: `/contents/{path}`. A template that others
        continue, such as `/users/{id}/keys`, has no such parameter.
        """
        given, found = self._after_prefix(segments(path)), dict[str, None]()
        for level, segment in zip(self._levels(self._start, given[:-2]), given[:-1], strict=False):
            ends = (above + end for above in level for end in self._ends(above, segment) if is_placeholder(end))
            found |= dict.fromkeys(ends)
        return self._index.at(*(template for template in found if not self._is_continued(template)))

    def _is_continued(self, template: str) -> bool:
        """Return whether a path has one segment more than *template*."""
        for child in self._index.paths.children(f"{template}/", ""):
            self._spend(_OVERHEAD + len(child))
            if not child.endswith("/"):
                return True
        return False

    def closest(self, path: str) -> str | None:
        """Return a path that differs from *path* in one misspelled segment, the last slash, or the server path."""
        toggled = path[:-1] if path.endswith("/") else f"{path}/"
        for other in (toggled, self._prefix + path, path.removeprefix(self._base)):
            if other != path and self.find(other):
                return other
        given, prefix = segments(path), self._prefix.split("/")
        different = [pair for pair in zip(prefix, given, strict=False) if not matches(*pair)]
        if not different:
            return self._misspelled(path, given[len(prefix) :], len(prefix))
        other = "/".join((*prefix, *path.split("/")[len(prefix) :]))
        is_similar = len(different) == 1 and bool(_similar(different[0][1], [different[0][0]]))
        return other if is_similar and self.find(other) else None

    def _misspelled(self, path: str, given: Sequence[str], position: int) -> str | None:
        """Return what differs from *path* in one of the segments *given*, which are those from *position* on."""
        for number, level in enumerate(self._levels(self._start, given[:-1]) if given else ()):
            above: dict[str, dict[str, None]] = {}
            for start, child in islice(self._alike(level, given[number]), _MAX_COMPARED // len(given)):
                is_last, word = not child.endswith("/"), child.removesuffix("/")
                if is_last == (number == len(given) - 1) and _may_be_misspelled(word, given[number]):
                    above.setdefault(word, {})[start] = None
            for word in _similar(given[number], list(above), _MAX_WORDS // len(given)):
                for start in above[word]:
                    if (template := self._completed(start + word, given[number + 1 :])) is not None:
                        parts = self._written(template).split("/")
                        return _filled(parts, path.split("/"), {position + number})
        return None

    def _alike(self, level: Sequence[str], segment: str) -> Iterator[tuple[str, str]]:
        """Yield the next segments after each of *level* with it, those that begin like *segment* first."""
        paths = self._index.paths
        for start in (segment[:2], segment[:1], ""):
            yield from ((above, child) for above in level for child in paths.children(above, start))

    def _completed(self, start: str, given: Sequence[str]) -> str | None:
        """Return a template of *start* and segments that match *given*, None if there is none."""
        if not given:
            return start
        level = self._levels(f"{start}/", given[:-1])[-1]
        return next((above + end for above in level for end in self._ends(above, given[-1])), None)

    def completions(self, incomplete: str, method: str | None = None) -> list[str]:
        """Return the paths that begin with *incomplete*, whose complete segments may be values of parameters.

        They are those of operations with *method*, if it is given. A parameter without a value is shown as in the
        template.
        """
        parts, prefix = incomplete.split("/"), self._prefix.split("/")
        if len(parts) <= len(prefix):
            return self._with_prefix(parts, prefix, method)
        if not (given := self._after_prefix(parts)):
            return []
        *done, last = given
        typed = incomplete[: len(incomplete) - len(last)]
        level = self._levels(self._start, done)[-1]
        if found := dict.fromkeys(typed + rest for each in level for rest in self._rests(each + last, each, method)):
            return list(found)
        paths = self._index.paths
        ends = (each + end for each in level for end in self._ends(each, last))
        is_end = any(has_method(paths.fields(each), method) for each in ends)
        starts = ((each + child, each + child[:-1]) for each in level for child in self._children(each, last))
        rests = (rest for pair in starts for rest in self._rests(*pair, method))
        return list(dict.fromkeys([*([incomplete] if is_end else ()), *(incomplete + rest for rest in rests)]))

    def _with_prefix(self, parts: list[str], prefix: list[str], method: str | None) -> list[str]:
        """Return all paths, whose *prefix* begins like *parts*; none if it does not."""
        *done, last = parts
        segment, *others = prefix[len(done) :]
        is_open = segment.startswith(last)  # and not a value of a parameter
        if not all(map(matches, prefix, done)) or not (is_open or matches(segment, last)):
            return []
        start = "/".join((*done, segment if is_open else last, *others))
        return [f"{start}/{rest}" for rest in self._rests(self._start, self._start, method)]

    def _rests(self, start: str, above: str, method: str | None) -> Iterator[str]:
        """Return what follows *above* in the paths that begin with *start*, which itself begins with *above*."""
        lines = self._index.paths.lines(start)
        return (path[len(above) :] for path, fields in lines if has_method(fields, method))


def _below(server: str, path: str) -> str | None:
    """Return the rest of *path* below *server*, a path that may contain parameters; None if it is elsewhere."""
    parts, given = server.split("/"), path.split("/")
    if len(given) <= len(parts) or not all(map(matches, parts, segments("/".join(given[: len(parts)])))):
        return None
    return "/" + "/".join(given[len(parts) :])


def _similar(word: str, others: list[str], most: int = 1) -> list[str]:
    """Return those *others* of which *word* may be a misspelling; compare *most* of them, which are the most likely."""
    from difflib import get_close_matches

    def equal(other: str) -> int:
        """Return the number of characters that are equal at the same position from the start or from the end."""
        return sum(map(str.__eq__, word, other)) + sum(map(str.__eq__, reversed(word), reversed(other)))

    likely = sorted(others, key=equal, reverse=True)[:most]
    return get_close_matches(word, likely, n=_MAX_SIMILAR)


def _may_be_misspelled(word: str, given: str) -> bool:
    """Return whether *given* may be *word* with a typing error."""
    is_short = len(word) <= _MAX_LENGTH and abs(len(word) - len(given)) <= _MAX_DIFFERENCE
    return is_short and "{" not in word and word != given


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
