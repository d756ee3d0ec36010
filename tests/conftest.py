"""Shared by all tests: no network, two threads, and where the public data sets lie."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# Read when `huggingface_hub` is first imported, so set before anything can import it: a test never reaches for the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch

# The order of floating-point sums depends on the number of threads: the same two everywhere keep exact comparisons exact.
torch.set_num_threads(2)

# What a shell starts in the background ignores SIGINT, and so would every process that a test starts, and waits for after a Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public data sets (GSM8K, MATH-500, ...) that SHARPEN_DATA names; the test is skipped without it."""
    value = os.environ.get("SHARPEN_DATA")
    if not value:
        pytest.skip("the environment variable SHARPEN_DATA is not set: it names the folder that holds the public data sets")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"SHARPEN_DATA names {path}, which is not a folder")
    return path
