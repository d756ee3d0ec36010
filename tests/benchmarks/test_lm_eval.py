"""sharpen and lm-evaluation-harness side by side: our own part of it always, the whole where lm-eval can be found."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import benchmark_scripts
from benchmark_scripts import BENCHMARKS
from sharpen.pipelines.evaluate import evaluate_model, source_from_text
from sharpen.problems.templates import Template
from sharpen.tracking import completions
from tiny import build_tiny

SCRIPT = BENCHMARKS / "lm_eval_gsm8k.py"
QUESTIONS = [f"Ann has {i} pens and buys {2 * i + 1} more. How many pens has she?" for i in range(2, 8)]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark_scripts.script("lm_eval_gsm8k")


def answer(script: ModuleType, text: str, right: bool):
    return script.Answer(text=text, right={"sharpen": right})


def problems(path: Path, answers: list[str]) -> Path:
    rows = [{"question": f" {q} ", "answer": f"Count them.\n#### {a}"} for q, a in zip(QUESTIONS, answers, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_problems_that_differ_are_told_one_by_one(script: ModuleType) -> None:
    mine = [answer(script, "It is 18", True), answer(script, "so 7", False), answer(script, "", False), answer(script, "5", True)]
    peer = [answer(script, "It is 18", True), answer(script, "so 8!", True), answer(script, "x", False), answer(script, "5", False)]
    assert script.differences(mine, peer) == [
        {"problem": 1, "parted": {"at": 3, "sharpen": "7", "lm-eval": "8!"}, "right": {"sharpen": False, "lm-eval": True}},
        {"problem": 2, "parted": {"at": 0, "sharpen": "", "lm-eval": "x"}, "right": {"sharpen": False, "lm-eval": False}},
        {"problem": 3, "parted": None, "right": {"sharpen": True, "lm-eval": False}},
    ]
    assert script.differences(mine, mine) == []
    assert (script.accuracy(mine), script.accuracy(peer)) == (0.5, 0.5)  # equal, though they differ on two problems
    with pytest.raises(ValueError):
        script.differences(mine, peer[:3])


def test_the_task_is_of_the_local_file_and_greedy(tmp_path: Path) -> None:
    """`--write-task` needs no lm-eval."""
    model, file = build_tiny(tmp_path / "model"), problems(tmp_path / "test.jsonl", ["1"] * 6)
    options = ["--model", str(model), "--file", str(file), "--new", "20", "--template", "plain", "--write-task", str(tmp_path / "task")]
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "task" / "sharpen_gsm8k.yaml").read_text()
    plain = yaml.safe_load("".join(line for line in text.splitlines(keepends=True) if "!function" not in line))
    assert plain["dataset_path"] == "json"
    assert plain["dataset_kwargs"] == {"data_files": {"test": str(file)}}
    assert plain["num_fewshot"] == 0
    kwargs = plain["generation_kwargs"]
    assert (kwargs["until"], kwargs["max_gen_toks"], kwargs["do_sample"]) == (["<|im_end|>", "<|endoftext|>"], 20, False)
    functions = (BENCHMARKS / "lm_eval_task.py").read_text()
    assert (tmp_path / "task" / "lm_eval_task.py").read_text() == functions
    named = [line.split("lm_eval_task.")[1] for line in text.splitlines() if "!function" in line]
    assert named == ["problems", "plain", "gold", "judge"]
    assert all(f"def {name}(" in functions for name in named)


def with_lm_eval() -> str:
    """An interpreter that has lm-eval: the one that LM_EVAL_PYTHON names, or this one."""
    named = os.environ.get("LM_EVAL_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("lm_eval") is None:
        pytest.skip("lm-eval is not installed here, and LM_EVAL_PYTHON names no interpreter that has it (docs/other-harnesses.md)")
    return sys.executable


@pytest.mark.slow
@pytest.mark.parametrize("template", ["chat", "plain"])
def test_a_random_model_has_the_same_texts_and_accuracy_in_both(tmp_path: Path, template: str) -> None:
    python = with_lm_eval()
    model = build_tiny(tmp_path / "model")
    # The ground truths of three problems are what the model will say, where that holds a number, so that the accuracy is not nothing.
    first = problems(tmp_path / "first.jsonl", ["1"] * 6)
    found = evaluate_model(
        str(model), source_from_text(str(first)), samples=1, ks=[1], max_new_tokens=24, temperature=0.0, require_stop=False,
        template=Template(name=template), output=tmp_path / "first",
    )  # fmt: skip
    said = [row["answer"] for row in completions.read(found.folder / "completions.parquet")]
    golds = [one if i % 2 == 0 and one is not None and one.lstrip("-").isdigit() else "123456" for i, one in enumerate(said)]
    file = problems(tmp_path / "test.jsonl", golds)
    options = ["--model", str(model), "--file", str(file), "--problems", "6", "--new", "24", "--template", template, "--batch-size", "3"]
    command = [
        sys.executable,
        str(SCRIPT),
        *options,
        "--threads",
        "1",
        "--lm-eval-python",
        python,
        "--json",
        str(tmp_path / "figures.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    figures = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert figures["differences"] == []
    assert figures["sharpen"] == figures["lm-eval"]["sharpen"] == sum(gold != "123456" for gold in golds) / 6
    assert "6 of 6 completions are the same text." in done.stdout
