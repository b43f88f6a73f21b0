"""Suggest known names for misspelled ones."""

from collections.abc import Iterable

_MIN_PREFIX = 3  # the minimum length of a prefix that can identify a name
_MIN_SIMILARITY = 0.7  # of a name that is suggested: `--fail` is not a misspelled `--profile`


def closest(word: str, names: Iterable[str]) -> str | None:
    """Return the name in *names* that is most similar to *word*, None if no name is similar; hyphens do not count."""
    from difflib import get_close_matches

    by_folded = {_folded(name): name for name in names}
    folded = _folded(word)
    prefixed = [name for name in by_folded if len(folded) >= _MIN_PREFIX and name.startswith(folded)]
    matches = prefixed if len(prefixed) == 1 else get_close_matches(folded, by_folded, n=1, cutoff=_MIN_SIMILARITY)
    return by_folded[matches[0]] if matches else None


def did_you_mean(word: str, names: Iterable[str], otherwise: str) -> str:
    """Return a hint that suggests the name most similar to *word*, or *otherwise* if no name is similar."""
    match = closest(word, names)
    return f"did you mean {match}?" if match else otherwise


def _folded(word: str) -> str:
    return word.lower().lstrip("-").replace("-", "_")
