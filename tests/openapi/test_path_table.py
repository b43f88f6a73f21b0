"""Lookups in the pages of a table find what a search of all paths finds."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.openapi import path_table
from xapi_cli.openapi.path_table import Page, PathTable, encode_pages, marks_in

_PATHS = st.lists(st.text("/ab{é0", max_size=8).map("/".__add__), min_size=1, max_size=60, unique=True)


def table_of(paths: list[str]) -> tuple[PathTable, list[Page]]:
    pages, data = encode_pages({path: f"GET {number}" for number, path in enumerate(paths)})
    parts, at = [], 0
    for page in pages:
        parts.append(data[at : at + page.length])
        at += page.length
    assert at == len(data)
    assert [crc32(part) for part in parts] == [page.checksum for page in pages]
    return PathTable(pages, marks_in(dict.fromkeys(paths, "")), lambda number: parts[number].decode()), pages


@pytest.mark.parametrize("size", [1, 30, 4096])
def test_lookups_find_what_a_search_of_all_paths_finds(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(path_table, "_PAGE", size)

    @given(_PATHS, st.text("/ab{é0", max_size=5).map("/".__add__), st.text("ab{é0", max_size=2))
    def check(paths: list[str], above: str, start: str) -> None:
        table, pages = table_of(paths)
        listed = [path for path in sorted(paths) if path.startswith(above)]

        assert len(pages) == len(paths) if size == 1 else len(pages) <= len(paths)
        assert list(table.lines(above)) == [(path, f"GET {paths.index(path)}") for path in listed]
        assert table.contains(above) == bool(listed)
        assert table.all_begin_with(above) == (len(listed) == len(paths))
        assert table.fields(above) == (f"GET {paths.index(above)}" if above in paths else "")
        starts = (above[:length] for length in range(len(above), -1, -1))
        assert table.shared(above) == len(next(each for each in starts if any(p.startswith(each) for p in paths)))
        rests = (path[len(above) :] for path in listed if path.startswith(above + start))
        children = ["".join(rest.partition("/")[:2]) for rest in rests]
        assert list(table.children(above, start)) == list(dict.fromkeys(children))

    check()


def test_a_page_starts_with_a_short_text_that_separates_it() -> None:
    _, pages = table_of([f"/{'a' * 1000}{number}/{'b' * 900}" for number in range(9)])

    assert len(pages) == 5
    assert all(len(page.first) <= 1002 for page in pages)
    assert sorted(page.first for page in pages) == [page.first for page in pages]


def test_the_marks_are_those_that_the_paths_contain() -> None:
    assert marks_in({"/a": ""}) == ""
    assert marks_in({"/a/{b}": "", "/c#d": "", "/e%20": ""}) == "{%#"
