"""The config and state directories on each platform."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.settings.config_file import config_path
from xapi_cli.system import safe_paths
from xapi_cli.system.private_files import state_directory


@pytest.mark.parametrize(
    "environ, config, state",
    [
        ({}, "/home/me/.config/xapi/config.toml", "/home/me/.local/state/xapi"),
        ({"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c/xapi/config.toml", "/s/xapi"),
        (
            {"XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "s"},
            "/home/me/.config/xapi/config.toml",
            "/home/me/.local/state/xapi",
        ),
        (
            {"XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
            "/home/me/.config/xapi/config.toml",
            "/home/me/.local/state/xapi",
        ),
        ({"XAPI_CONFIG_DIR": "/x", "XAPI_STATE_DIR": "/y", "XDG_CONFIG_HOME": "/c"}, "/x/config.toml", "/y/xapi"),
    ],
)
def test_the_directories_follow_the_conventions_of_the_platform(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], config: str, state: str
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/me")

    assert (config_path(environ), state_directory(environ)) == (Path(config), Path(state))


@pytest.mark.parametrize("variable, path_of", [("XAPI_CONFIG_DIR", config_path), ("XAPI_STATE_DIR", state_directory)])
def test_a_relative_directory_is_relative_to_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, path_of: Callable[[Mapping[str, str]], Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tmp_path / "here" in path_of({variable: "here"}).parents

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match=f"{variable} is relative, and the current directory does not exist"):
        path_of({variable: "here"})


def test_variables_with_relative_home_directories_are_found() -> None:
    environ = {"HOME": "/home/me", "XDG_CONFIG_HOME": ".", "XDG_CACHE_HOME": "", "OTHER": "x"}

    assert safe_paths.relative_homes(environ) == ["XDG_CACHE_HOME", "XDG_CONFIG_HOME"]
