"""The scripts of `benchmarks/`, which are not installed, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def script(name: str) -> ModuleType:
    """One of them: scripts find one another beside themselves, so their folder is on the path while they are imported."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))
