"""A test server on loopback that implements the documented API and its documented errors.

It is not the code of the real service: responses that the API documentation does not
specify follow RFC 6749 and RFC 6750.
"""

import threading
from typing import Self

from xapi_cli.features.sandbox.accounts import MASTER, MEMBER, MONTH, Accounts, User
from xapi_cli.features.sandbox.api import PATHS
from xapi_cli.features.sandbox.server import OnResponse, Server

__all__ = ["MASTER", "MEMBER", "MONTH", "PATHS", "Sandbox", "User"]


class Sandbox(Accounts):
    """A context manager that serves the API on loopback; *port* 0 selects a free port.

    *expires_in* is the lifetime of tokens in seconds; *slow* and *forget_after* are those of `Accounts`. Threads call
    *on_response* with method, path and status of each response. Raises UsageError if the port cannot be used.
    """

    def __init__(
        self,
        port: int = 0,
        expires_in: int = MONTH,
        on_response: OnResponse | None = None,
        *,
        slow: float = 0.0,
        forget_after: int | None = None,
    ) -> None:
        super().__init__(expires_in, slow=slow, forget_after=forget_after)
        self._server = Server(port, self, on_response)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        """Return the base URL of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def settings(self) -> dict[str, str]:
        """Return the environment variables with which xapi logs in to this server as the master user."""
        return {"XAPI_BASE_URL": self.base_url, "XAPI_USERNAME": MASTER.email, "XAPI_PASSWORD": MASTER.password}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
