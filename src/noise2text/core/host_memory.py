"""Memory of the host that is freed and needed again.

A pass of a network on a CPU allocates and frees tensors of megabytes all the time. The C library of Linux
(glibc) gives such memory back to the system at once and asks for it again, and the system fills every page
with zeros: in batches, a third of the time of generation. It is told to keep the memory instead.
"""

from __future__ import annotations

import ctypes
import functools
import os

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_KEPT_BYTES = 1 << 30
_OLD_LIMIT = 1 << 25  # the largest threshold that older versions accept


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 1 GiB of freed memory for its next tensors; returns whether it does.

    Nothing changes where the C library is another one, or where MALLOC_… or GLIBC_TUNABLES in the environment
    already say what to keep.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl and Windows
        return False
    is_kept = bool(mallopt(_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_MMAP_THRESHOLD, _OLD_LIMIT))
    return is_kept and bool(mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
