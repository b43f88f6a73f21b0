"""The client of the tests of the sandbox."""

from collections.abc import Iterator

import httpx
import pytest

from tests.features.sandbox.client import NO_TLS
from xapi_cli.features.sandbox import Sandbox


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=sandbox.base_url, trust_env=False, verify=NO_TLS, timeout=60) as client:
        yield client
