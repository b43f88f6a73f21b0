"""`make release` builds files that can be checked, or refuses."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import xapi_cli
from tests.test_packaging import ROOT, project_files
from tests.tools.release.checks import Refused, check_destination, check_tree, check_wheel

VERSION = xapi_cli.__version__
SDIST, WHEEL = f"xapi_cli-{VERSION}.tar.gz", f"xapi_cli-{VERSION}-py3-none-any.whl"
CHANGELOG = f"# Changelog\n\n## [Unreleased]\n\n## [{VERSION}] - 2026-11-22\n\n### Added\n\n- the first version\n"


def git(tree: Path, *args: str) -> None:
    author = ("-c", "user.name=A Maintainer", "-c", "user.email=maintainer@example.com", "-c", "commit.gpgsign=false")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # of a hook of git
    subprocess.run(["git", "-C", str(tree), *author, *args], check=True, capture_output=True, timeout=60, env=environ)


pytestmark = pytest.mark.slow  # each fixture builds a release


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of this project, ready for a release."""
    tree = tmp_path_factory.mktemp("project") / "xapi"
    for path in project_files():
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    (tree / "CHANGELOG.md").write_text(CHANGELOG)
    git(tree, "init", "--quiet")
    assert (tree / ".git").is_dir()
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "Release")
    return tree


def make_release(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.tools.release", str(tree)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def released(ready: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What `make release` printed, and a copy of dist/."""
    (ready / "dist").mkdir()
    (ready / "dist" / "xapi_cli-0.0.1.tar.gz").write_bytes(b"of another version")
    result = make_release(ready)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout, shutil.copytree(ready / "dist", tmp_path_factory.mktemp("released") / "dist")


def test_a_release_prints_what_to_upload(released: tuple[str, Path]) -> None:
    printed, dist = released

    assert sorted(path.name for path in dist.iterdir()) == [WHEEL, SDIST]
    sums = [f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  dist/{name}" for name in (WHEEL, SDIST)]
    assert printed.splitlines() == [
        f"xapi {VERSION} is ready. Two builds were identical. Upload these files:",
        *sums,
        f"Next: git tag --sign v{VERSION} && git push origin v{VERSION}; see docs/releasing.md",
    ]


@pytest.mark.slow  # two more builds
def test_the_files_of_a_release_are_the_same_in_another_directory(
    ready: Path, released: tuple[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "a directory with another name"
    git(ready, "clone", "--quiet", str(ready), str(other))
    result = make_release(other)

    assert (result.returncode, result.stderr) == (0, "")
    for name in (WHEEL, SDIST):
        assert (other / "dist" / name).read_bytes() == (released[1] / name).read_bytes()


def test_the_wheel_of_a_release_contains_the_bill_of_materials(released: tuple[str, Path]) -> None:
    with zipfile.ZipFile(released[1] / WHEEL) as archive:
        data = archive.read(f"xapi_cli-{VERSION}.dist-info/sboms/xapi-cli.cdx.json")
        record = archive.read(f"xapi_cli-{VERSION}.dist-info/RECORD").decode()

    assert data == (ROOT / "docs/xapi-cli.cdx.json").read_bytes()
    assert json.loads(data)["metadata"]["component"]["version"] == VERSION
    assert f"xapi_cli-{VERSION}.dist-info/sboms/xapi-cli.cdx.json,sha256=" in record


def untracked(tree: Path) -> None:
    (tree / "notes.txt").write_text("not committed\n")


def modified(tree: Path) -> None:
    (tree / "LICENSE").write_text("All rights reserved\n")


def tagged(tree: Path) -> None:
    git(tree, "tag", f"v{VERSION}")


def changelog(text: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        (tree / "CHANGELOG.md").write_text(text)
        git(tree, "commit", "--quiet", "--all", "--message", "Change the changelog")

    return change


def breaking(tree: Path) -> None:
    """Tag the commit as an earlier version, then remove and change a line of `.surface`."""
    git(tree, "tag", "v0.0.9")
    first, second, *rest = (tree / ".surface").read_text().splitlines(keepends=True)
    (tree / ".surface").write_text("".join([f"renamed {second}", *rest, "added"]))
    git(tree, "commit", "--quiet", "--all", "--message", f"Remove {first}")


REFUSALS: dict[str, tuple[Callable[[Path], None], str]] = {
    "untracked": (untracked, r"1 files are not committed \(notes.txt, …\); commit or remove them"),
    "modified": (modified, r"1 files are not committed \(LICENSE, …\); commit or remove them"),
    "tagged": (tagged, rf"the tag v{VERSION} exists; change __version__ in xapi_cli/__init__\.py"),
    "other section": (changelog("## [0.0.1]\n\n- old\n"), rf"CHANGELOG\.md has no section for {VERSION}; add .*"),
    "empty section": (
        changelog(f"## [{VERSION}]\n\n### Added\n\n"),
        rf"CHANGELOG\.md has no section for {VERSION}; .*",
    ),
    "unreleased": (
        changelog(f"## [Unreleased]\n\n- new\n\n## [{VERSION}]\n\n- old\n"),
        rf"CHANGELOG\.md has entries in Unreleased; move them to the section of {VERSION}",
    ),
    "breaking": (
        breaking,
        r"\.surface no longer has 2 lines of v0\.0\.9 \(command agent, …\); describe that under `### Breaking` in .*",
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_release_is_refused(tmp_path: Path, ready: Path, reason: str) -> None:
    tree = tmp_path / "xapi"
    git(ready, "clone", "--quiet", str(ready), str(tree))
    check_tree(tree)
    change, message = REFUSALS[reason]
    change(tree)
    result = make_release(tree)

    assert (result.returncode, result.stdout, (tree / "dist").exists()) == (1, "", False)
    assert re.fullmatch(f"release: error: {message}\n", result.stderr)


def test_a_release_can_break_scripts_if_the_changelog_says_it(tmp_path: Path, ready: Path) -> None:
    tree = tmp_path / "xapi"
    git(ready, "clone", "--quiet", str(ready), str(tree))
    breaking(tree)
    changelog(f"## [{VERSION}]\n\n### Breaking\n\n- `xapi agent` has another name\n")(tree)

    check_tree(tree)


def test_a_release_can_add_to_the_surface(tmp_path: Path, ready: Path) -> None:
    tree = tmp_path / "xapi"
    git(ready, "clone", "--quiet", str(ready), str(tree))
    git(tree, "tag", "v0.0.9")
    (tree / ".surface").write_text((tree / ".surface").read_text() + "zzz\n")
    git(tree, "commit", "--quiet", "--all", "--message", "Add a line")

    check_tree(tree)


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_release_follows_no_symbolic_link(tmp_path: Path, ready: Path, target: str) -> None:
    tree, elsewhere = tmp_path / "xapi", tmp_path / "elsewhere"
    git(ready, "clone", "--quiet", str(ready), str(tree))
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (tree / "dist").symlink_to(tmp_path / target)
    (tree / ".git" / "info" / "exclude").write_text("dist\n")
    result = make_release(tree)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "release: error: dist is a symbolic link; remove it\n"
    assert [path.name for path in elsewhere.iterdir()] == ["file"]
    assert not (tmp_path / "missing").exists()


def test_a_file_in_place_of_dist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dist").touch()

    with pytest.raises(Refused, match="dist is not a directory; remove it"):
        check_destination(tmp_path / "dist")


@pytest.mark.slow  # two more builds
def test_files_that_fail_a_check_are_not_stored(tmp_path: Path, ready: Path) -> None:
    tree = tmp_path / "xapi"
    git(ready, "clone", "--quiet", str(ready), str(tree))
    (tree / "xapi_cli" / "notes.txt").write_text("in the wheel by mistake\n")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "Add notes")
    (tree / "dist").mkdir()
    (tree / "dist" / "earlier").write_text("kept")
    result = make_release(tree)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"release: error: {WHEEL} has other files: xapi_cli/notes.txt\n"
    assert [path.name for path in (tree / "dist").iterdir()] == ["earlier"]


def test_a_release_needs_a_git_checkout(tmp_path: Path, ready: Path) -> None:
    shutil.copytree(ready, tmp_path / "xapi", ignore=shutil.ignore_patterns(".git"))

    with pytest.raises(Refused, match=r"git status failed: (?s:.*); run `make release` in a git checkout"):
        check_tree(tmp_path / "xapi")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("xapi_cli/left_over.py", b"", "has other files: xapi_cli/left_over.py"),
        ("tests/__init__.py", b"", "has other files: tests/__init__.py"),
        ("xapi_cli/__main__.py", b"print()", "differs from the tree: xapi_cli/__main__.py"),
        (f"xapi_cli-{VERSION}.dist-info/sboms/xapi-cli.cdx.json", b"{}", "differs from the tree: .*xapi-cli.cdx.json"),
        (
            f"xapi_cli-{VERSION}.dist-info/entry_points.txt",
            b"[console_scripts]\nxapi = xapi_cli.__main__:main\nls = xapi_cli.__main__:main\n",
            "has commands other than xapi",
        ),
    ],
)
def test_a_wheel_with_other_contents_is_refused(
    tmp_path: Path, released: tuple[str, Path], name: str, data: bytes, message: str
) -> None:
    changed = tmp_path / WHEEL
    with zipfile.ZipFile(released[1] / WHEEL) as original, zipfile.ZipFile(changed, "w") as copy:
        contents = {each: original.read(each) for each in original.namelist()}
        for each, value in {**contents, name: data}.items():
            copy.writestr(each, value)

    check_wheel(released[1] / WHEEL, ROOT)
    with pytest.raises(Refused, match=message):
        check_wheel(changed, ROOT)
