"""Wheels of installed packages, so that tests can install without a network."""

import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from itertools import product
from pathlib import Path

from packaging.markers import Marker

from tests.tools.release.locks import USERS, read_lock


def locked_packages() -> Iterator[Distribution]:
    """Yield the installed packages that requirements.txt pins for this system.

    Raises RuntimeError if another version is installed.
    """
    for pin in read_lock(USERS).values():
        if not pin.marker or Marker(pin.marker).evaluate():
            package = distribution(pin.name)
            if package.version != pin.version:
                raise RuntimeError(f"{pin.name} {package.version} is installed, {pin.version} is locked")
            yield package


def write_wheel(package: Distribution, directory: Path) -> None:
    """Write a wheel of the installed *package* to *directory*: its files, without those that the installer wrote."""
    with zipfile.ZipFile(directory / _name(package), "w") as archive:
        for file in package.files or []:
            written = (
                file.parts[0] == ".." or file.suffix == ".pyc" or file.name in {"INSTALLER", "REQUESTED", "RECORD"}
            )
            if not written:
                archive.write(Path(str(file.locate())), file.as_posix())
        (record,) = (file for file in package.files or [] if file.name == "RECORD")
        names = "".join(f"{name},,\n" for name in [*archive.namelist(), record.as_posix()])
        archive.writestr(record.as_posix(), names)


def _name(package: Distribution) -> str:
    lines = (package.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ").split("-") for line in lines if line.startswith("Tag: ")]
    parts = [".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True)]
    if len(tags) != len(list(product(*(part.split(".") for part in parts)))):
        raise RuntimeError(f"the tags of {package.name} do not fit into a file name")
    return f"{package.name.replace('-', '_').replace('.', '_')}-{package.version}-{'-'.join(parts)}.whl"


def write_wheelhouse(directory: Path) -> None:
    """Write wheels of all locked packages, and of the pip that runs the tests, to *directory*."""
    for package in (*locked_packages(), distribution("pip")):
        write_wheel(package, directory)
