"""API descriptions that the tests of `xapi api` load."""

from pathlib import Path
from typing import Any

from tests.openapi.documents import SWAGGER, as_bytes
from tests.support.program import Xapi

NOTHING_LOADED = (
    "xapi: error: no API description is loaded for profile default; "
    "run `xapi api load FILE`, or `xapi api load /openapi.json` if the API serves one\n"
)


def write(xapi: Xapi, document: Any, name: str = "api.json") -> Path:
    """Write *document* to the file *name* in the home directory, where the program runs."""
    path = xapi.home / name
    path.write_bytes(document if isinstance(document, bytes) else as_bytes(document))
    return path


def load(xapi: Xapi, document: Any = SWAGGER, **env: str) -> None:
    """Load *document*, with *env* in the environment."""
    write(xapi, document)
    assert xapi("api", "load", "api.json", env=env).code == 0
