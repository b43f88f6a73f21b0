"""`make release`: builds the committed tree twice, and stores the files in dist/ if both builds are identical."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import xapi_cli

ROOT = Path(__file__).parents[2]


class Refused(Exception):
    """The tree or its files are not ready for a release; the message says why."""


def release(root: Path) -> list[Path]:
    """Build the commit in *root*, and return the files in its dist/. Raises Refused, with dist/ as it was."""
    if _run(root, "git", "status", "--porcelain"):
        raise Refused("there are files that are not committed; commit or remove them")
    version = xapi_cli.__version__
    if not re.search(rf"^## {re.escape(version)} - \d{{4}}-", (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise Refused(f"CHANGELOG.md has no date for {version}; write `## {version} - DATE`")
    with tempfile.TemporaryDirectory(prefix="xapi-release-") as temporary:
        first, second = (_build(root, Path(temporary) / name) for name in ("first", "second-in-a-longer-path"))
        if _contents(first) != _contents(second):
            raise Refused("two builds differ; look for times, paths and orders in the build")
        _run(first, sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(first.iterdir())))
        shutil.rmtree(root / "dist", ignore_errors=True)
        shutil.copytree(first, root / "dist")
    return sorted((root / "dist").iterdir())


def _build(root: Path, tree: Path) -> Path:
    """Unpack the commit of *root* in *tree*, build an sdist and a wheel from it there, and return their directory."""
    _run(root, "git", "clone", "--quiet", "--no-hardlinks", str(root), str(tree))
    time = _run(root, "git", "log", "-1", "--format=%ct").strip()
    _run(tree, sys.executable, "-m", "build", "--no-isolation", "--outdir", "out", ".", SOURCE_DATE_EPOCH=time)
    return tree / "out"


def _contents(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def _run(directory: Path, *command: str, **environ: str) -> str:
    ran = subprocess.run(
        command, cwd=directory, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise Refused(f"{' '.join(command[:3])} failed:\n{ran.stdout}{ran.stderr}".rstrip())
    return ran.stdout


if __name__ == "__main__":
    try:
        for file in release(ROOT):
            print(hashlib.sha256(file.read_bytes()).hexdigest(), f"dist/{file.name}")
    except Refused as refused:
        sys.exit(f"release: error: {refused}")
