"""Memory that is kept for the next tensor."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from sharpen import allocator

PROGRAM = """
import resource
import torch
from sharpen.allocator import keep_freed_memory

def use():
    return [torch.zeros(4_000_000) for _ in range(8)]

assert keep_freed_memory()
for _ in range(3):
    use()
turns = []
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use()
    turns.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(turns)[2])  # a turn now and then is laid out anew, or has lost pages to a system that is short of memory
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can be told to keep memory")
def test_pages_are_touched_for_the_first_time_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 * 4_000_000 * 4 // 4096 // 100  # of what the tensors of one turn have


def test_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def mallopt(name: int, size: int) -> int:
        asked.append((name, size))
        return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert allocator.keep_freed_memory.__wrapped__()
    assert asked == [(-3, 32 * 2**20), (-1, 2**31 - 1), (-2, 64 * 2**20)]  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD of malloc.h


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not allocator.keep_freed_memory.__wrapped__()
