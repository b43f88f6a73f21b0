"""The lock files: which versions they pin, and why."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tools.documents import ROOT

LOCKS = sorted(ROOT.glob("requirements*.txt"))
USERS = ROOT / "requirements.txt"

_PROJECT = re.compile(r"xapi-cli \(pyproject\.toml.*?\)")


class Pin(NamedTuple):
    """A pinned package. *required_by* has the names of the packages that require it; `xapi` is this project."""

    name: str
    version: str
    marker: str
    required_by: tuple[str, ...]


@cache
def read_lock(path: Path) -> dict[str, Pin]:
    """Return the packages that the file at *path* pins, by name."""
    return {pin.name: pin for pin in _pins(path.read_text())}


def _pins(text: str) -> Iterator[Pin]:
    for block in re.split(r"\n(?=[a-z])", text):
        line, *rest = block.replace("\\\n", "").splitlines()
        if line.startswith("#"):
            continue
        requirement = Requirement(line.partition(" --hash")[0])
        (specifier,) = requirement.specifier
        if specifier.operator != "==":
            raise ValueError(f"{requirement.name} is not pinned")
        sources = [re.sub(r"^ *# +(via)? *", "", each) for each in rest]
        required_by = {_PROJECT.sub("xapi", each) for each in sources if each and not each.startswith("-c ")}
        name = canonicalize_name(requirement.name)
        yield Pin(name, specifier.version, str(requirement.marker or ""), tuple(sorted(required_by)))


def for_development() -> dict[str, Pin]:
    """Return the packages that only development needs, by name."""
    pins = {name: pin for path in LOCKS if path != USERS for name, pin in read_lock(path).items()}
    return {name: pins[name] for name in sorted(pins.keys() - read_lock(USERS).keys())}
