"""The URL of a Redis server."""

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.store.redis.address import Address, parse


@pytest.mark.parametrize(
    "url, address, shown",
    [
        ("redis://host", Address("host", 6379, "", False, "", "", 0), "host:6379"),
        ("REDIS://Host:1/", Address("host", 1, "", False, "", "", 0), "host:1"),
        ("rediss://host:6380/15", Address("host", 6380, "", True, "", "", 15), "host:6380"),
        ("redis://:pass@host", Address("host", 6379, "", False, "", "pass", 0), "host:6379"),
        ("redis://me:p%40%2F%3Fs@[::1]:7", Address("::1", 7, "", False, "me", "p@/?s", 0), "[::1]:7"),
        ("redis://me:a@b@host", Address("host", 6379, "", False, "me", "a@b", 0), "host:6379"),
        ("unix:///run/redis.sock", Address("", 0, "/run/redis.sock", False, "", "", 0), "/run/redis.sock"),
        ("unix://me:pass@/run/s?db=3", Address("", 0, "/run/s", False, "me", "pass", 3), "/run/s"),
    ],
)
def test_a_url_names_a_server_a_user_and_a_database(url: str, address: Address, shown: str) -> None:
    assert parse(url) == address
    assert str(parse(url)) == shown
    assert repr(parse(url)) == f"Address({shown})"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "http://host",
        "redis://",
        "redis://:CANARY@",
        "redis://me:CANARY@host:99999",
        "redis://me:CANARY@host/name",
        "redis://me:CANARY@host/-1",
        "redis://me:CANARY@host/99999",
        "rediss://me:CANARY@host?ssl_cert_reqs=none",
        "rediss://me:CANARY@host#insecure",
        "redis://me:CAN/ARY@host",
        "redis://me:CANARY@ho st",
        "redis://me:CANARY@host\n",
        "unix://me:CANARY@",
        "unix:///run/CANARY?password=1",
        "unix:///run/CANARY?db=x",
    ],
)
def test_another_url_is_a_usage_error_that_does_not_contain_it(url: str) -> None:
    with pytest.raises(UsageError, match="the Redis URL ") as raised:
        parse(url)
    assert "CANARY" not in str(raised.value)
