"""What a message suggests to the user: a text in which commands and flags are values until it is printed.

A command works when it is pasted only if it has the profile of the command that failed, and the library has parameters
instead of flags; only the place that prints a hint knows them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Run(NamedTuple):
    """A command without `xapi`; *value* is that of its flag of *setting*, if it has one."""

    command: str
    setting: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"`xapi {self.command}{f' {Option(self.setting)} {self.value}' if self.setting else ''}`"


class Option(NamedTuple):
    """The flag of a *setting*."""

    setting: str

    def __str__(self) -> str:
        return f"--{self.setting.replace('_', '-')}"


Hint = str | tuple[str | Run | Option, ...]


def together(*hints: Hint | None) -> Hint:
    """Return *hints* one after the other, as one."""
    parts = tuple(part for hint in hints if hint for part in ((hint,) if isinstance(hint, str) else hint))
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts  # type: ignore[arg-type]  # all are texts


def joined(separator: str, hints: Iterable[Hint]) -> Hint:
    """Return *hints* with *separator* between them."""
    first, *others = hints
    return together(first, *(together(separator, hint) for hint in others))


def replaced(hint: Hint | None, part: str, other: str) -> Hint | None:
    """Return *hint* with *other* in place of *part*, if it is one of its parts."""
    return tuple(other if each == part else each for each in hint) if isinstance(hint, tuple) else hint


def text(hint: Hint, shown: Callable[[Run | Option], str] = str) -> str:
    """Return *hint* as it is printed; *shown* returns the text of a command or a flag."""
    return hint if isinstance(hint, str) else "".join(each if isinstance(each, str) else shown(each) for each in hint)


def encoded(hint: Hint | None) -> Any:
    """Return *hint* as a value that JSON can store, for another process."""
    return [each if isinstance(each, str) else [*each] for each in hint] if isinstance(hint, tuple) else hint


def decoded(value: Any) -> Hint | None:
    """Return the hint that `encoded` returned *value* for; None if it is not one."""
    if isinstance(value, str):
        return value
    kinds: dict[int, type[Run | Option]] = {3: Run, 1: Option}
    try:
        return tuple(each if isinstance(each, str) else kinds[len(each)](*map(str, each)) for each in value)
    except (TypeError, KeyError):
        return None


def did_you_mean(word: str, names: Iterable[str], otherwise: str) -> str:
    """Return a hint that suggests the name most similar to *word*, or *otherwise* if no name is similar."""
    from difflib import get_close_matches

    match = next(iter(get_close_matches(word, list(names), n=1)), None)
    return f"did you mean {match}?" if match else otherwise
