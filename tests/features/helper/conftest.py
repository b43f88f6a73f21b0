"""The stores that the tests of storage open."""

from tests.store.conftest import notes, opened, state

__all__ = ["notes", "opened", "state"]
