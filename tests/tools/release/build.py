"""Builds the files of a release twice, and refuses them unless they are identical."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from tests.tools.release.checks import Refused, check_destination, check_tree, check_wheel, git


def release(root: Path, directory: Path) -> list[Path]:
    """Build the committed tree of *root*, check the files, and store them in dist/; return their paths there.

    *directory* is for temporary files. Raises Refused if the tree or the files do not satisfy a rule of a release;
    then, dist/ is unchanged.
    """
    check_tree(root)
    check_destination(root / "dist")
    first, second = (_build(root, directory / name) for name in ("first", "second-build-in-a-longer-path"))
    if first != second:
        differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        raise Refused(f"two builds differ: {', '.join(differing)}; look for times, paths and orders in the build")
    files = _store(first, directory / "checked")
    _run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, files)], directory)
    for wheel in (path for path in files if path.suffix == ".whl"):
        check_wheel(wheel, root)
    check_destination(root / "dist")  # again, since the builds take long
    return _store(first, root / "dist")


def _build(root: Path, tree: Path) -> dict[str, bytes]:
    """Build an sdist, and a wheel from it, from the commit in *root*, unpacked in *tree*; return both by name."""
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(root), "archive", "HEAD"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        # older security releases of Python, which some distributions have, know no filters
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(tree)  # noqa: S202 - the archive contains what is committed
    environ = {**os.environ, "SOURCE_DATE_EPOCH": git(root, "log", "-1", "--format=%ct").strip()}
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", "out", "."], tree, environ)
    return {path.name: path.read_bytes() for path in sorted((tree / "out").iterdir())}


def _store(contents: Mapping[str, bytes], directory: Path) -> list[Path]:
    """Write *contents* to *directory* in place of what it contains, and return the paths."""
    if directory.exists():
        shutil.rmtree(directory)  # files of another version would be uploaded too
    directory.mkdir()
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    return sorted(directory.iterdir())


def _run(argv: list[str], directory: Path, environ: Mapping[str, str] | None = None) -> None:
    result = subprocess.run(argv, cwd=directory, env=environ, capture_output=True, text=True, check=False)
    if result.returncode:
        raise Refused(f"{argv[2]} failed:\n{result.stdout}{result.stderr}".rstrip())


def summary(files: list[Path], version: str) -> str:
    """Return what to upload, and the next steps."""
    rows = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  dist/{path.name}" for path in files]
    return "\n".join(
        [
            f"xapi {version} is ready. Two builds were identical. Upload these files:",
            *rows,
            f"Next: git tag --sign v{version} && git push origin v{version}; see docs/releasing.md",
        ]
    )
