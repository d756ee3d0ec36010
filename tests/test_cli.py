"""The command line: help is light, and every command says what it is for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from made_up_run import MadeUp

COMMANDS = [
    "train",
    "eval",
    "compare",
    "sample",
    "search",
    "inspect",
    "behaviours",
    "diagnose",
    "report",
    "watch",
    "audit-reward",
    "grade",
    "train-reward-model",
    "make-tiny",
    "post-train",
    "methods",
    "recipes",
    "doctor",
]


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


def test_behaviours_and_diagnose(tmp_path: Path) -> None:
    run = MadeUp(cut=lambda t: 0.6 * t).write(tmp_path / "run")
    done = sharpen("diagnose", str(run))
    assert done.returncode == 0, done.stderr
    assert "The length limit eats the reward." in done.stdout
    done = sharpen("behaviours", str(run), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "of wrong ones" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["behaviours.csv", "behaviours.png"]
    (tmp_path / "file").write_text("")
    for arguments in (
        ["diagnose", str(tmp_path)],
        ["behaviours", str(tmp_path)],
        ["behaviours", str(run), "--output", str(tmp_path / "file")],
    ):
        done = sharpen(*arguments)
        assert done.returncode == 2
        assert done.stderr.count("→") == 1
        assert "Traceback" not in done.stderr
