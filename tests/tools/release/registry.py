"""Query the package index for the license and last release of each locked package; the last step of `make lock`."""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.tools.release.dependencies import PAGE, Facts, page
from tests.tools.release.locks import USERS, Pin, for_development, read_lock
from tests.tools.release.sbom import SBOM, sbom

# Older metadata names the license in words. "BSD License" remains, because it does not name the variant.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD License",
    "BSD 2-Clause License": "BSD-2-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_EXPRESSION = re.compile(r"[A-Za-z]+-[\d.]+(?:-Clause)?|MIT|ISC|[\w.-]+ OR [\w.-]+")


def license_of(package: Distribution) -> str:
    """Return the license that the metadata of *package* states, as SPDX if possible."""
    fields = package.metadata
    names = [each.rpartition(" :: ")[2] for each in fields.get_all("Classifier") or [] if each.startswith("License")]
    text = " ".join(fields.get_all("License") or [])
    if expression := fields.get_all("License-Expression"):
        return str(expression[0])
    if text in _SPDX or _EXPRESSION.fullmatch(text):
        return _SPDX.get(text, text)
    return " AND ".join(_SPDX.get(each, each) for each in names) or text or "not stated"


def licenses(packages: Iterable[Distribution]) -> dict[str, str]:
    """Return the licenses of *packages*, by name."""
    return {canonicalize_name(package.name): license_of(package) for package in packages}


def _licenses_of(pins: Collection[Pin], uv: str, directory: Path) -> dict[str, str]:
    """Return the licenses of *pins*: from this environment, or from wheels for Windows, unpacked in *directory*."""
    here = licenses(distributions())
    missing = [f"{pin.name}=={pin.version}" for pin in pins if pin.name not in here]
    to_windows = ["--python-platform", "windows", "--python-version", "3.11", "--target", str(directory)]
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", *to_windows, *missing], check=True)
    return {**licenses(distributions(path=[str(directory)])), **here}


def _latest(names: Collection[str], uv: str) -> dict[str, tuple[str, date]]:
    """Return the latest version of each package, and the day of its release."""
    compile_ = [uv, "pip", "compile", "--quiet", "--no-deps", "--universal", "--python-version", "3.14"]
    lock = subprocess.run(
        [*compile_, "--format", "pylock.toml", "-"], input="\n".join(names), check=True, capture_output=True, text=True
    )
    latest = {}
    for package in tomllib.loads(lock.stdout)["packages"]:
        files = [*package.get("wheels", []), *filter(None, [package.get("sdist")])]
        latest[package["name"]] = package["version"], min(file["upload-time"] for file in files).date()
    return latest


def main(uv: str) -> None:
    """Write the tables of docs/packages.md, and the bill of materials."""
    pins = {**read_lock(USERS), **for_development()}
    latest = _latest(pins, uv)
    with tempfile.TemporaryDirectory() as directory:
        stated = _licenses_of(pins.values(), uv, Path(directory))
    facts = {name: Facts(stated[name], released, version) for name, (version, released) in latest.items()}
    PAGE.write_text(page(PAGE.read_text(), facts, datetime.now(UTC).date()))
    SBOM.write_text(sbom(facts))


if __name__ == "__main__":
    main(sys.argv[1])
