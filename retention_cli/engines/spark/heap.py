"""How much freed memory this process keeps: a plan's batches are alike, and none should leave a heap behind."""

from __future__ import annotations

import os
from typing import Any, Final

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of glibc's malloc.h."""


def share_one_heap() -> None:
    """Have all threads share one heap of glibc's; call it before they begin.

    Else each thread has its own, and what it has freed no other thread uses: clusters are read and put together by some
    dozen threads. Python's threads allocate one at a time anyway. If ``MALLOC_ARENA_MAX`` is set, that holds.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and (libc := _glibc()) is not None:
        libc.mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    """Return freed memory to the system: Arrow's, and glibc's."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> Any:
    """Return the C library if it is glibc, else None."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # another system
        return None
    if not name.startswith("glibc"):
        return None
    import ctypes

    return ctypes.CDLL(None)
