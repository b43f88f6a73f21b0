"""What names a boot of a machine, where the system has an ID for it and where not."""

import time

import pytest

from xapi_cli.system import boot_time


def test_the_name_of_a_boot_is_its_id() -> None:
    assert boot_time.boot_name() == boot_time.boot_id() != ""


def test_without_an_id_the_name_is_the_host_and_the_time_of_the_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_time, "boot_id", lambda: "")
    monkeypatch.setattr("socket.gethostname", lambda: "my höst")
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    monkeypatch.setattr(boot_time, "since_boot", lambda: 1000.0)

    assert boot_time.boot_name() == "'my_h\\xf6st'@999000"

    monkeypatch.setattr(boot_time, "since_boot", lambda: 20.0)
    assert boot_time.boot_name() == "'my_h\\xf6st'@999980"
