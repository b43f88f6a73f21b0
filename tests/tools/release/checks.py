"""What a release must satisfy before it is built, and what its files must contain."""

import configparser
import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

SCRIPTS = {"xapi": "xapi_cli.__main__:main"}

_METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "sboms/xapi-cli.cdx.json")


class Refused(Exception):
    """The release is refused; the message says why and what to do."""


def git(root: Path, *args: str) -> str:
    """Return the output of `git` in *root*. Raises Refused if git fails, for example outside a repository."""
    result = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=False)
    if result.returncode:
        raise Refused(f"git {args[0]} failed: {result.stderr.strip()}; run `make release` in a git checkout")
    return result.stdout


def version_of(root: Path) -> str:
    """Return the version of the package in *root*."""
    found = re.search(r'^__version__ = "(.+)"$', (root / "xapi_cli" / "__init__.py").read_text(), re.MULTILINE)
    if not found:
        raise Refused("xapi_cli/__init__.py has no __version__; add it")
    return found[1]


def check_tree(root: Path) -> None:
    """Raise Refused unless the tree in *root* is committed, described in CHANGELOG.md, and not yet released."""
    version = version_of(root)
    if changed := git(root, "status", "--porcelain").splitlines():
        raise Refused(f"{len(changed)} files are not committed ({changed[0][3:]}, …); commit or remove them")
    if git(root, "tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} exists; change __version__ in xapi_cli/__init__.py")
    sections = dict(_sections((root / "CHANGELOG.md").read_text()))
    if not _entries(sections.get(version, "")):
        raise Refused(f"CHANGELOG.md has no section for {version}; add `## [{version}] - DATE` and what changed")
    if _entries(sections.get("Unreleased", "")):
        raise Refused(f"CHANGELOG.md has entries in Unreleased; move them to the section of {version}")
    _check_surface(root, sections[version])


def _check_surface(root: Path, section: str) -> None:
    """Raise Refused if what scripts depend on has changed since the last tag and *section* does not say that."""
    tags = git(root, "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").split()
    if not tags or re.search(r"^### Breaking\n+-", section, re.MULTILINE):
        return
    changes = git(root, "diff", "--no-color", "--no-ext-diff", "--unified=0", tags[0], "HEAD", "--", ".surface")
    if removed := re.findall(r"^-(?!--)(.*)", changes, re.MULTILINE):
        what = f".surface no longer has {len(removed)} lines of {tags[0]} ({removed[0]}, …)"
        raise Refused(f"{what}; describe that under `### Breaking` in CHANGELOG.md")


def check_destination(directory: Path) -> None:
    """Raise Refused unless *directory*, whose content a release replaces, is a directory or does not exist."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        what = "a symbolic link" if directory.is_symlink() else "not a directory"
        raise Refused(f"{directory.name} is {what}; remove it")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if found := re.match(r"\[(.+?)\].*\n", section):
            yield found[1], section[found.end() :]


def _entries(section: str) -> str:
    return re.sub(r"^\[.*|^#.*", "", section, flags=re.MULTILINE).strip()


def check_wheel(wheel: Path, root: Path) -> None:
    """Raise Refused unless *wheel* contains the package in *root*, its man pages, its metadata, and nothing else."""
    version = version_of(root)
    if wheel.name != f"xapi_cli-{version}-py3-none-any.whl":
        raise Refused(f"{wheel.name} is not a wheel of {version} for each system; check pyproject.toml")
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    expected = _expected(root, version)
    if contents.keys() != expected.keys():
        raise Refused(f"{wheel.name} has other files: {', '.join(sorted(contents.keys() ^ expected.keys()))}")
    if changed := [name for name, data in expected.items() if data is not None and contents[name] != data]:
        raise Refused(f"{wheel.name} differs from the tree: {', '.join(changed)}")
    information = f"xapi_cli-{version}.dist-info"
    scripts = configparser.ConfigParser()
    scripts.read_string(contents[f"{information}/entry_points.txt"].decode())
    if dict(scripts["console_scripts"]) != SCRIPTS:
        raise Refused(f"{wheel.name} has commands other than {', '.join(SCRIPTS)}; check pyproject.toml")
    if json.loads(contents[f"{information}/sboms/xapi-cli.cdx.json"])["metadata"]["component"]["version"] != version:
        raise Refused("docs/xapi-cli.cdx.json is of another version; run `python -m tests.tools.release.sbom`")


def _expected(root: Path, version: str) -> dict[str, bytes | None]:
    """Return the contents of the wheel by name; None if the build writes the file."""
    package = [path for path in root.glob("xapi_cli/**/*") if path.suffix in {".py", ".typed"}]
    manual = f"xapi_cli-{version}.data/data/share/man/man1"
    information = f"xapi_cli-{version}.dist-info"
    return {
        **{path.relative_to(root).as_posix(): path.read_bytes() for path in package},
        **{f"{manual}/{path.name}": path.read_bytes() for path in root.glob("docs/man/*.1")},
        **dict.fromkeys((f"{information}/{name}" for name in _METADATA), None),
        f"{information}/licenses/LICENSE": (root / "LICENSE").read_bytes(),
        f"{information}/sboms/xapi-cli.cdx.json": (root / "docs/xapi-cli.cdx.json").read_bytes(),
    }
