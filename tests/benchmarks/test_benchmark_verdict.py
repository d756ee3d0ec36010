"""The simulation of the verdict: its worlds are what they are said to be, and its tables are whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmark_scripts import BENCHMARKS, script

SCRIPT = BENCHMARKS / "verdict.py"


def test_the_tables_and_their_figures(tmp_path: Path) -> None:
    options = ["--sets", "300", "--problems", "60", "--samples", "16", "--json", str(tmp_path / "cells.json")]
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = {cell["world"]: cell for cell in json.loads((tmp_path / "cells.json").read_text())}
    assert len(cells) == 14
    for name, cell in cells.items():
        assert sum(cell["words"].values()) == pytest.approx(1.0)
        if cell["reach"] <= 0.051:
            assert cell["words"]["extended"] + cell["words"]["both"] <= 0.05, name
        assert name in done.stdout
    for name in ("+ margin, many flips", "+ margin, no flips", "+ margin, odds × 8"):
        assert cells[name]["reach"] == pytest.approx(0.05, abs=0.001)
    assert cells["unchanged"]["reach"] == cells["unchanged"]["within"] == 0.0
    assert cells["ceiling, odds × 8"]["words"]["no clear change"] == 1.0
    # odds × 8: p = 1/2 becomes 8/9, and 0 stays 0
    assert script("verdict").odds(np.array([0.0, 0.5, 1.0]), 8.0).tolist() == pytest.approx([0.0, 8 / 9, 1.0])
