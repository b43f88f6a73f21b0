"""Fixtures of machines that share a Redis server."""

from collections.abc import Iterator

import pytest

from tests.features.redis.fleet import Env, OneTokenSandbox
from tests.support.redis_server import RedisServer


@pytest.fixture
def service() -> Iterator[OneTokenSandbox]:
    with OneTokenSandbox() as server:
        yield server


@pytest.fixture
def env(service: OneTokenSandbox, shared_redis: RedisServer) -> Env:
    return {**service.settings, **shared_redis.environ}
