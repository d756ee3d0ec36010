"""The command line: help is light, and every command says what it is for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

COMMANDS = ["train", "eval", "sample", "inspect", "audit-reward", "grade", "make-tiny", "post-train", "methods", "recipes", "doctor"]


def sharpen(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sharpen.cli", *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['sharpen', '--help']\n"
        "from sharpen.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'numpy', 'pydantic', 'datasets', 'sympy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert command in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    done = sharpen(command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_methods_recipes_and_doctor() -> None:
    assert "2402.03300" in sharpen("methods").stdout
    page = sharpen("methods", "grpo").stdout
    assert "π_ref/π_θ − log(π_ref/π_θ) − 1" in page
    assert "kl_coef" in page
    assert "quickstart" in sharpen("recipes").stdout
    keys = sharpen("recipes", "--keys").stdout
    for key in ("group_size", "learning_rate", "kl_coef", "answer_extraction", "require_stop"):
        assert key in keys
    doctor = sharpen("doctor").stdout
    assert "torch" in doctor
    assert "free memory" in doctor
    assert importlib.util.find_spec("trackio") or "sharpen[trackio]" in doctor  # the extra's name is no markup


def test_an_unknown_option_is_a_usage_error() -> None:
    done = sharpen("train", "quickstart", "--resum")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
