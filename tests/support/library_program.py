"""Programs that use the package as a library."""

import subprocess
import textwrap

from tests.features.batch.server import Api
from tests.support.program import PYTHON, Environ, Outcome, Xapi
from tests.support.servers import Server


class Program:
    """Runs Python code that uses the installed package."""

    def __init__(self, xapi: Xapi) -> None:
        self.xapi = xapi

    def __call__(self, code: str, env: Environ, *, prelude: str = "") -> Outcome:
        prelude += "import threading, httpx, xapi_cli\nfrom xapi_cli.errors import *\n"
        ran = subprocess.run(
            [PYTHON, "-c", prelude + textwrap.dedent(code)],
            env=self.xapi.environment(env),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=self.xapi.home,
            timeout=60,
            check=False,
        )
        return Outcome(ran.returncode, ran.stdout, ran.stderr)


def with_token(server: Server | Api) -> dict[str, str | None]:
    """Return the environment with *server* as the API and a token for it."""
    return {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "canary"}
