"""Programs that use the package as a library."""

import textwrap

from tests.features.batch.server import Api
from tests.support.program import Environ, Outcome, Xapi
from tests.support.servers import Server


class Program:
    """Runs Python code that uses the installed package."""

    def __init__(self, xapi: Xapi) -> None:
        self.xapi = xapi

    def __call__(self, code: str, env: Environ, *, prelude: str = "") -> Outcome:
        prelude += "import threading, httpx, xapi_cli\nfrom xapi_cli.errors import *\n"
        process = self.xapi.start(code=prelude + textwrap.dedent(code), env=env)
        out, err = process.communicate()
        return Outcome(process.returncode, out.decode(), err.decode())


def with_token(server: Server | Api) -> dict[str, str | None]:
    """Return the environment with *server* as the API and a token for it."""
    return {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "canary"}
