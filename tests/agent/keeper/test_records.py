"""Records in locked memory."""

import gc

from xapi_cli.agent.keeper.records import LockedMemory


def test_locked_memory_leaves_nothing_to_the_garbage_collector() -> None:
    LockedMemory(10)  # loads the library
    gc.collect()
    LockedMemory(10)
    assert not gc.isenabled()
    assert gc.collect() == 0
