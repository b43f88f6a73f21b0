"""One budget of bytes for all that is in memory on its way in or out."""

LIMIT = 24 * 1024 * 1024


class MemoryBudget:
    """Count bytes; at least one body of the largest size is let in whatever the count is."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._used = 0

    @property
    def has_room(self) -> bool:
        """Whether more may come in."""
        return self._used < self._limit

    def add(self, size: int) -> None:
        """Count *size* bytes more."""
        self._used += size

    def remove(self, size: int) -> None:
        """Count *size* bytes less."""
        self._used -= size
