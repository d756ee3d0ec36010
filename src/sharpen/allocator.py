"""How the C library hands out memory to PyTorch on a CPU."""

from __future__ import annotations

import ctypes
import functools
import sys

# Parameters of mallopt(3), and the most that glibc takes for the second.
TRIM_THRESHOLD, MMAP_THRESHOLD, TOP_PAD = -1, -3, -2
LARGEST_FROM_HEAP = 32 * 2**20
KEEP = 2**31 - 1
GROW_BY = 64 * 2**20


@functools.cache
def keep_freed_memory() -> bool:
    """Keep memory that tensors have given back for the tensors to come, instead of returning it to the system each time.

    Every page that comes from the system is cleared and mapped at its first touch, which took a sixth of the processor time of a training
    step, whose tensors live for milliseconds. Only glibc can be told so; elsewhere nothing is changed.

    Returns:
        Whether it was.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library, such as musl
        return False
    # A threshold that is set is one that glibc no longer moves by itself.
    return all(mallopt(name, size) for name, size in ((MMAP_THRESHOLD, LARGEST_FROM_HEAP), (TRIM_THRESHOLD, KEEP), (TOP_PAD, GROW_BY)))
