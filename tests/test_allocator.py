"""Memory that is kept for the next tensor."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from sharpen.allocator import keep_freed_memory

if {keep}:
    assert keep_freed_memory()
def use():
    return [torch.zeros(4_000_000) for _ in range(8)]

for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(keep=keep)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can be told to keep memory")
def test_pages_are_touched_for_the_first_time_once() -> None:
    kept, given_back = faults(keep=True), faults(keep=False)
    assert 10 * kept < given_back
