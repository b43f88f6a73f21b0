"""Suggest known names for misspelled ones."""

from collections.abc import Iterable

_TELLING = 3  # the minimum length of a prefix that can identify a name


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name in *names* that is most similar to *word*, None if no name is similar."""
    from difflib import get_close_matches

    folded, by_folded = _folded(word), {_folded(name): name for name in names}
    begun = [name for name in by_folded if len(word) >= _TELLING and name.startswith(folded)]
    close = begun if len(begun) == 1 else get_close_matches(folded, by_folded, n=1)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, names: Iterable[str], otherwise: str) -> str:
    """Return a hint that suggests the name most similar to *word*, or only *otherwise* if no name is similar."""
    close = closest(word, names)
    return f"did you mean {close}? {otherwise[:1].upper()}{otherwise[1:]}" if close else otherwise


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")
