"""Find the operation of a path: templates such as `/users/{id}` match paths such as `/users/7`."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote

from xapi_cli.openapi.index import Entry, Index

_PARAMETER = re.compile(r"\{[^{}]*\}")


class Routes:
    """The operations of *index*, as paths below the path of the base URL, *base_path*.

    If the document's server path starts with the base path, the remainder is a part of each path. If the paths of the
    document start with the base path themselves, it is removed. Otherwise, they are below the base URL.
    """

    def __init__(self, index: Index, base_path: str) -> None:
        self._index = index
        server, base = index.info.server_path, base_path.rstrip("/")
        self._base, self._prefix, self._removed = base, "", 0
        if f"{server}/".startswith(f"{base}/"):
            self._prefix = server[len(base) :]
        elif all(entry.path.startswith(f"{base}/") for entry in index.entries):
            self._removed = len(base)

    def path(self, entry: Entry) -> str:
        """Return PATH for *entry*, as a user writes it."""
        return self._prefix + entry.path[self._removed :]

    def paths(self, method: str | None = None) -> list[str]:
        """Return the different paths, of operations with *method* only if it is given."""
        return list(dict.fromkeys(self.path(entry) for entry in self._index.entries if method in (None, entry.method)))

    def find(self, path: str) -> list[Entry]:
        """Return the operations at *path*; of several templates that match, those of the most specific one."""
        segments = _segments(path)
        ranked: dict[tuple[int, ...], list[Entry]] = {}
        for entry in self._index.entries:
            template = self.path(entry).split("/")
            if len(template) == len(segments) and all(map(_matches, template, segments)):
                # A template that is written as it is comes first, then one with early literal text: `{name}:cancel`.
                rank = (template == segments, *map(_literal_length, template))
                ranked.setdefault(rank, []).append(entry)
        return ranked[max(ranked)] if ranked else []

    def find_prefix(self, path: str) -> list[Entry]:
        """Return the operations with a parameter at the end of their template that takes the rest of *path*.

        OpenAPI does not allow a slash in a parameter, but many APIs do: `/contents/{path}`. A template that others
        continue, such as `/users/{id}/keys`, has no such parameter.
        """
        segments = _segments(path)
        continued = {template.rpartition("/")[0] for template in self.paths()}
        found = []
        for entry in self._index.entries:
            template = self.path(entry)
            parts = template.split("/")
            is_open = len(parts) < len(segments) and is_placeholder(parts[-1]) and template not in continued
            if is_open and all(map(_matches, parts, segments)):  # compares as many segments as the template has
                found.append(entry)
        return found

    def closest(self, path: str) -> str | None:
        """Return a path that differs from *path* in one misspelled segment, the last slash, or the server path."""
        toggled = path[:-1] if path.endswith("/") else f"{path}/"
        for other in (toggled, self._prefix + path, path.removeprefix(self._base)):
            if other != path and self.find(other):
                return other
        from difflib import get_close_matches

        segments, candidates = _segments(path), {}
        for template in {tuple(each.split("/")) for each in self.paths()}:
            if len(template) != len(segments):
                continue
            different = [number for number, each in enumerate(template) if not _matches(each, segments[number])]
            if len(different) == 1 and "{" not in template[different[0]]:
                candidates[different[0], template[different[0]]] = template
        for number, word in enumerate(segments):
            words = sorted(word for position, word in candidates if position == number)
            if matches := get_close_matches(word, words, n=1):
                return _filled(candidates[number, matches[0]], segments, {number})
        return None

    def completions(self, incomplete: str, method: str | None = None) -> Iterator[str]:
        """Yield the paths that begin with *incomplete*, whose complete segments may be values of parameters.

        A parameter that has no value yet is shown as in the template.
        """
        *done, last = incomplete.split("/")
        literal: dict[str, None] = {}
        open_: dict[str, None] = {}
        for path in self.paths(method):
            template = path.split("/")
            if len(template) <= len(done) or not all(map(_matches, template, done)):
                continue
            segment, rest = template[len(done)], template[len(done) + 1 :]
            if segment.startswith(last):
                literal["/".join((*done, segment, *rest))] = None
            elif _matches(segment, last):
                open_["/".join((*done, last, *rest))] = None
        yield from literal or open_


def is_placeholder(segment: str) -> bool:
    """Return whether *segment* of a template consists of a parameter."""
    return segment.startswith("{") and segment.endswith("}")


def placeholders(path: str, templates: Iterable[str]) -> list[str]:
    """Return the parameters of *templates* that *path* contains as they are, instead of values."""
    segments = set(path.split("/"))
    return [each for template in templates for each in template.split("/") if is_placeholder(each) and each in segments]


def _segments(path: str) -> list[str]:
    return [unquote(segment) for segment in path.split("/")]


def _matches(template: str, segment: str) -> bool:
    """Return whether *segment* is the literal *template*, or has a value for each parameter in it."""
    start, brace, rest = template.partition("{")
    if not brace:
        return template == segment
    end = rest.rpartition("}")[2]
    return len(segment) > len(start) + len(end) and segment.startswith(start) and segment.endswith(end)


def _literal_length(segment: str) -> int:
    """Return the length of the text around the parameters of *segment*, or a larger number if it has none."""
    return len(_PARAMETER.sub("", segment)) if "{" in segment else sys.maxsize


def _filled(template: Sequence[str], segments: Sequence[str], kept: set[int]) -> str:
    """Return *template* with the values of *segments* for its parameters, except at the positions *kept*."""
    return "/".join(
        each if number in kept or "{" not in each else segments[number] for number, each in enumerate(template)
    )
