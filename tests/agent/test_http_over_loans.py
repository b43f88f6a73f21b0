"""The tests of the HTTP layer pass with connections that the relay lends, over which it passes the bytes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
_NEW = "a request that may not be resent gets a new connection"
DIFFERENCES = {
    "test_connection_reuse.py::test_a_post_is_not_resent_when_a_reused_connection_fails": _NEW,
    "test_connection_reuse.py::test_a_single_use_body_is_not_lost_when_a_reused_connection_fails": _NEW,
    "test_transport_tls.py::test_https_reports_the_tls_version": _NEW,
    "test_connection_reuse.py::test_a_connection_that_the_server_closed_is_replaced_before_sending": "reads the pool",
    "test_connection_reuse.py::test_an_idle_connection_is_not_reused_after_the_keep_alive_timeout": "sets a clock",
    "test_malformed_responses.py::test_an_unknown_host_is_reported_by_name": "replaces the resolver of its process",
    "test_timeouts.py::test_name_resolution_has_a_timeout_and_uses_one_thread": "the same",
    "test_timeouts.py::test_unreachable_addresses_do_not_delay_a_reachable_one": "the same",
    "test_timeouts.py::test_all_addresses_share_one_timeout": "the same",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("relays", ["https", "all"])
def test_the_tests_of_the_http_layer_pass_over_a_loan(relays: str) -> None:
    deselected = [f"--deselect=tests/http/{name}" for name in DIFFERENCES]
    plugins = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.agent.loan_plugin"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *deselected, "-m", "not soak and not slow", "tests/http"],
        cwd=ROOT,
        env={**os.environ, "XAPI_TEST_RELAYS": relays},
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
    )
    assert result.returncode == 0, result.stdout[-5000:]
