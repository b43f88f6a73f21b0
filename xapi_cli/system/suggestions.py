"""What somebody may have meant who wrote something else."""

from collections.abc import Iterable

_TELLING = 3  # letters of a name from which one can tell which


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the one of *names* that *word* looks most like, None where it looks like none of them."""
    from difflib import get_close_matches

    folded, by_folded = _folded(word), {_folded(name): name for name in names}
    begun = [name for name in by_folded if len(word) >= _TELLING and name.startswith(folded)]
    close = begun if len(begun) == 1 else get_close_matches(folded, by_folded, n=1)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, names: Iterable[str], otherwise: str) -> str:
    """Return the hint that names what *word* looks like, and *otherwise* where it looks like none of *names*."""
    close = closest(word, names)
    return f"did you mean {close}? {otherwise[:1].upper()}{otherwise[1:]}" if close else otherwise


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")
