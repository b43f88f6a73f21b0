"""Pages that were requested before are found, in constant memory."""

import pytest

from xapi_cli.request.pages.paginate import _MAX_REMEMBERED, Visited


@pytest.mark.parametrize("before, length", [(0, 1), (3, 5), (_MAX_REMEMBERED - 1, 7), (50_000, 30_000)])
def test_any_loop_is_found(before: int, length: int) -> None:
    visited = Visited()
    urls = (f"/{number if number < before else before + (number - before) % length}" for number in range(10**6))

    found = next(number for number, url in enumerate(urls) if visited.contains(url))

    assert found >= before + length
    assert found == before + length or found <= 3 * (before + length)


def test_pages_without_a_loop_are_accepted() -> None:
    visited = Visited()

    assert not any(visited.contains(f"/{number}") for number in range(3 * _MAX_REMEMBERED))
