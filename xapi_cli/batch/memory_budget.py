"""A common limit on the memory for input, responses and output in progress."""

LIMIT = 24 * 1024 * 1024


class MemoryBudget:
    """Count bytes in memory; callers admit at least one body of the maximum size regardless of the count."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._used = 0

    @property
    def has_room(self) -> bool:
        """Return whether the count is below the limit."""
        return self._used < self._limit

    def add(self, size: int) -> None:
        """Add *size* bytes to the count."""
        self._used += size

    def remove(self, size: int) -> None:
        """Subtract *size* bytes from the count."""
        self._used -= size
