"""The import contract of `pyproject.toml`: rooms import only what lies below them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_imports_point_down_only() -> None:
    # `lint-imports` lies beside the interpreter that runs the tests; it need not be on PATH.
    executable = Path(sys.executable).parent / "lint-imports"
    if not executable.exists():
        pytest.fail(f"{executable} is missing: install the `dev` extra")
    done = subprocess.run([executable, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"an import points up:\n{done.stdout}{done.stderr}"
