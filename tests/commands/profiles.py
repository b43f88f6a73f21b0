"""The config file that the tests of `xapi profile` change."""

from tests.support.program import Xapi

WRITTEN = """\
default_profile = "work"
# mine
[profiles.work]
base_url = "https://api.test"
username = "me@example.com"
password_command = ["pass", "it's"]
[profiles.home]
timeout = 2.5
"""


def write_config(xapi: Xapi, text: str = WRITTEN) -> None:
    """Write *text* to the config file."""
    xapi.config.mkdir(exist_ok=True)
    (xapi.config / "config.toml").write_text(text)


def config_of(xapi: Xapi) -> str:
    """Return the text of the config file."""
    return (xapi.config / "config.toml").read_text()
