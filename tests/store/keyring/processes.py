"""What the tests of keyrings share: an account, and the outcome of a process that uses a keyring."""

import subprocess
from collections.abc import Callable

from xapi_cli.tokens import Identity

ME = Identity("https://api.test", "me@example.com")
REMEDY = "run `xapi login --storage file` to store the token in a file"
READ = "print(failing(lambda: store().read(ME)), flush=True)"
Run = Callable[..., subprocess.Popen[str]]


def ended(process: "subprocess.Popen[str]", within: float = 30) -> tuple[list[str], float]:
    """Return the lines of stdout, and the seconds that the access took."""
    out, err = process.communicate(timeout=within)
    assert process.returncode == 0, err
    return out.splitlines(), float(err.strip() or 0)
