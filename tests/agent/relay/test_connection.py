"""A relayed connection, without a server."""

import gc
import weakref
from typing import Any

from xapi_cli.agent.relay.connection import RelayedConnection


def test_a_relayed_connection_is_freed_without_the_garbage_collector() -> None:
    unused: Any = None
    relayed = RelayedConnection(unused, unused)
    relayed.close()
    freed = weakref.ref(relayed)
    del relayed
    assert not gc.isenabled()
    assert freed() is None
