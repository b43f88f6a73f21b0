"""The tables of locked packages in docs/packages.md.

The tables also store what only a network knows, so that tests and the bill of materials work without one.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

from tests.support.pages import cells
from tests.tools.documents import ROOT
from tests.tools.release.locks import USERS, Pin, for_development, read_lock

PAGE = ROOT / "docs" / "packages.md"

_HEAD = "| package | version | license | last release | required by |\n| --- | --- | --- | --- | --- |\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")
_CHECKED = re.compile(r"(?<=Last checked against the package index on )\d{4}-\d\d-\d\d")
_LAST = re.compile(r"(\d{4}-\d\d-\d\d)(?: \((.+)\))?")


class Facts(NamedTuple):
    """The license of a package, as SPDX, and its *latest* version, which was released on the day *released*."""

    license: str
    released: date
    latest: str


def page(text: str, facts: Mapping[str, Facts], checked: date) -> str:
    """Return *text*, a page of dependencies, with the current tables and the day on which *facts* were *checked*."""
    tables = iter((_table(read_lock(USERS), facts), _table(for_development(), facts)))
    return _CHECKED.sub(checked.isoformat(), _TABLE.sub(lambda _: next(tables), text))


def _table(pins: Mapping[str, Pin], facts: Mapping[str, Facts]) -> str:
    return _HEAD + "".join(f"| {' | '.join(_row(pin, facts[name]))} |\n" for name, pin in pins.items())


def _row(pin: Pin, facts: Facts) -> tuple[str, ...]:
    newer = "" if facts.latest == pin.version else f" ({facts.latest})"
    sources = ", ".join("xapi" if each == "xapi" else f"`{each}`" for each in pin.required_by)
    return f"`{pin.name}`", pin.version, facts.license, f"{facts.released}{newer}", sources


def facts_in(text: str) -> dict[str, Facts]:
    """Return the facts that the tables of *text* store, by the name of the package."""
    facts = {}
    for name, version, license_, last, _ in cells("".join(_TABLE.findall(text)), columns=5):
        if found := _LAST.fullmatch(last):
            released, latest = found.groups()
            facts[name.strip("`")] = Facts(license_, date.fromisoformat(released), latest or version)
    return facts


def checked_in(text: str) -> date:
    """Return the day on which the facts in *text* were checked."""
    return date.fromisoformat(_CHECKED.findall(text)[0])
