"""Memory for a secret in separate pages: not written to swap space where the limits allow it, and not dumped."""

import ctypes
import mmap
from contextlib import suppress

_PAGE = mmap.PAGESIZE


class LockedMemory:
    """*size* bytes, initially zero, which `view` contains; they are overwritten when nothing refers to this object.

    `is_locked` is False if RLIMIT_MEMLOCK does not allow the pages to be locked (mlock(2)).
    """

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, -(-max(size, 1) // _PAGE) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for advice in ("MADV_DONTDUMP", "MADV_DONTFORK"):  # Linux
            with suppress(OSError, AttributeError):
                self._pages.madvise(getattr(mmap, advice))
        self.is_locked = self._lock()
        self.view = memoryview(self._pages)[:size]

    def __del__(self) -> None:
        if not hasattr(self, "view"):
            return  # the system had no memory
        self.view.release()
        self._pages[:] = bytes(len(self._pages))
        self._pages.close()  # which unlocks the pages

    def _lock(self) -> bool:
        try:
            mlock = ctypes.CDLL(None).mlock
        except (OSError, AttributeError):
            return False
        mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        first = ctypes.c_char.from_buffer(self._pages)
        return bool(mlock(ctypes.addressof(first), len(self._pages)) == 0)
