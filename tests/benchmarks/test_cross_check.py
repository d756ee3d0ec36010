"""Losses and gradients against TRL's, where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cross_check_trl.py"


@pytest.mark.slow
def test_losses_and_gradients_agree_with_trl() -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("trl is not installed: pip install -e '.[trl]'")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
