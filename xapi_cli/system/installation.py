"""How this installation of xapi gets an extra: the command depends on the tool that installed it.

The project is not published, so a command must never make a tool fetch `xapi-cli` from a package index. pip finds that
`xapi-cli` is installed already, and adds only the requirements of the extra. uv and pex build the environment again,
which needs the checkout or the wheel that xapi was installed from.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from xapi_cli.system.files import home

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME = "xapi-cli"
_CHECKOUT = Path(__file__).parents[2]  # if the package is not installed
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


class _Source(NamedTuple):
    """What xapi was installed from, as an argument of uv and pip, and the *place* to which a relative one refers."""

    argument: str
    place: str = ""


def how_to_add(extra: str) -> str:
    """Return an instruction for the user: run the command that adds *extra* to the running installation."""
    if os.environ.get("PEX"):
        command = (
            f"uvx pex --python python3 {_quoted(f'.[{extra}]')} --script xapi --output-file {_path(os.environ['PEX'])}"
        )
        return f"run `{command}` in a checkout of xapi"
    prefix = Path(sys.prefix)
    distribution = _distribution()
    if (prefix / "uv-receipt.toml").exists():
        source = _source(distribution, ",".join(sorted({*_extras_of_uv(prefix), extra})))
        return f"run `uv tool install --reinstall {source.argument}`{source.place}"
    if (prefix / "pipx_metadata.json").exists():
        return f"run `pipx runpip {_path(prefix.name)} install {_quoted(f'{_NAME}[{extra}]')}`"
    if distribution is None:
        return f"run `{_path(sys.executable)} -m pip install {_quoted(f'{_CHECKOUT}[{extra}]')}`"
    directory = Path(str(distribution.locate_file("")))
    if not _is_on_default_path(directory):
        source = _source(distribution, extra)
        command = f"{_path(sys.executable)} -m pip install --upgrade --target {_path(directory)} {source.argument}"
        return f"run `{command}`{source.place}"
    return f"run `{_pip(prefix)} {_quoted(f'{_NAME}[{extra}]')}`"


def _distribution() -> "Distribution | None":
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _pip(prefix: Path) -> str:
    """Return the start of the command that installs into the environment *prefix*, even if it has no pip."""
    scripts, suffix = ("Scripts", ".exe") if sys.platform == "win32" else ("bin", "")
    if sys.prefix == sys.base_prefix:
        return f"{_path(sys.executable)} -m pip install"
    if (pip := prefix / scripts / f"pip{suffix}").exists():
        return f"{_path(pip)} install"
    if (installer := prefix / "installer" / scripts / f"pip{suffix}").exists():  # of `make program`
        return f"{_path(installer)} --python {_path(prefix)} install"
    if re.search(r"^uv\s*=", (prefix / "pyvenv.cfg").read_text(errors="replace"), re.MULTILINE):
        return f"uv pip install --python {_path(prefix)}"
    return f"{_path(sys.executable)} -m ensurepip && {_path(sys.executable)} -m pip install"


def _is_on_default_path(directory: Path) -> bool:
    import site
    import sysconfig

    default = {
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        site.getusersitepackages(),
        *site.getsitepackages(),
    }
    return any(os.path.realpath(path) == os.path.realpath(directory) for path in default)


def _source(distribution: "Distribution | None", extras: str) -> _Source:
    """Return what *distribution* was installed from (PEP 610), with *extras*."""
    try:
        recorded = json.loads((distribution and distribution.read_text("direct_url.json")) or "{}")
        url = str(recorded.get("url", ""))
    except (ValueError, AttributeError):  # not what an installer writes
        recorded, url = {}, ""
    if commit := recorded.get("vcs_info", {}).get("commit_id"):
        return _Source(_quoted(f"{_NAME}[{extras}] @ git+{url}@{commit}"))
    if urlsplit(url).scheme == "file" and os.path.exists(path := url2pathname(urlsplit(url).path)):
        return _Source(_quoted(f"{path}[{extras}]"))
    return _Source(_quoted(f".[{extras}]"), " in a checkout of xapi")


def _extras_of_uv(prefix: Path) -> list[str]:
    """Return the extras with which uv installed xapi: it installs only those that the command names."""
    import tomllib

    requirements = tomllib.loads((prefix / "uv-receipt.toml").read_text()).get("tool", {}).get("requirements", [])
    return [extra for found in requirements if found.get("name") == _NAME for extra in found.get("extras", [])]


def _path(path: str | Path) -> str:
    """Return *path* as a word of a command, relative to the home directory if it is there."""
    text = str(path)
    start = f"{home()}{os.sep}"
    if text.startswith(start) and _PLAIN.fullmatch(rest := text.removeprefix(start)) and sys.platform != "win32":
        return f"~/{rest}"
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    """Return *text* as a word of a command; cmd and PowerShell know only double quotes both."""
    return f'"{text}"' if sys.platform == "win32" else shlex.quote(text)
