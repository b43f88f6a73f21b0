"""A shared limit on the memory for input, responses and output in progress."""

LIMIT = 24 * 1024 * 1024  # bytes
_RESERVE = 64 * 1024 * 1024  # bytes; more than the decoding of one response takes in addition to its body


class MemoryBudget:
    """Count bytes in memory, up to *limit*; callers admit at least one body of the maximum size in any case.

    Beyond the limit, short responses can use a reserve.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.left = limit  # bytes; below 0 if more was admitted
        self.has_room = limit > 0

    @property
    def has_reserve(self) -> bool:
        """Whether there is room in the limit or in the reserve."""
        return self.left > -_RESERVE

    def add(self, size: int) -> None:
        """Add *size* bytes to the count."""
        self.left -= size
        self.has_room = self.left > 0

    def remove(self, size: int) -> None:
        """Subtract *size* bytes from the count."""
        self.left += size
        self.has_room = self.left > 0
