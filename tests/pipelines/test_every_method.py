"""Every method from one recipe, by one word, on a tiny random model: it runs, and a resumed run is the run that was not stopped."""

from __future__ import annotations

import filecmp
import json
import math
from pathlib import Path
from typing import Any

import pytest

from sharpen.errors import ProblemError, RecipeError
from sharpen.methods import METHODS
from sharpen.pipelines.train import RunResult, train
from sharpen.recipe import load_recipe
from tiny import build_tiny

RECIPE = """
model = "{place}/model"
seed = 4

[problems.train]
source = "arithmetic"
levels = [3]
count = 12

[rollout]
problems = 3
group_size = 4
max_new_tokens = 40

[[rewards.functions]]
function = "rewards.py:digits"

[method]
name = "grpo"
accept = 0.15

[training]
steps = 4
num_iterations = 2
learning_rate = 1e-3
value_learning_rate = 1e-3
token_budget = 256

[checkpoint]
every = 2
"""
REWARDS = """
def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""
MINE = """
import dataclasses
import torch
from sharpen.methods import GRPO, Method

class BestOfGroup(Method):
    def with_advantages(self, batch):
        best = (batch.rewards == batch.rewards.nan_to_num(-1).amax(dim=1, keepdim=True)).flatten()[batch.place]
        return dataclasses.replace(batch, advantages=torch.where(batch.loss_mask, best[:, None].float(), 0.0))

BEST = BestOfGroup(**{field.name: getattr(GRPO, field.name) for field in dataclasses.fields(GRPO)} | {"name": "best_of_group"})
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    build_tiny(folder / "model")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "mine.py").write_text(MINE)
    (folder / "recipe.toml").write_text(RECIPE.format(place=folder))
    return folder


def run(place: Path, name: str, *overrides: str, resume: bool = False) -> RunResult:
    path = place / "recipe.toml"
    return train(load_recipe(path, [f"output={place / name}", *overrides]), recipe_path=path, resume=resume)


def events(place: Path, name: str, kind: str = "step") -> list[dict[str, Any]]:
    return [e for e in map(json.loads, (place / name / "events.jsonl").read_text().splitlines()) if e["event"] == kind]


@pytest.mark.parametrize("name", METHODS)
def test_it_runs_and_resumes_exactly(place: Path, name: str) -> None:
    whole, halves = f"{name}-whole", f"{name}-halves"
    run(place, whole, f"method.name={name}")
    run(place, halves, f"method.name={name}", "training.steps=2")
    run(place, halves, f"method.name={name}", resume=True)
    steps = [event["metrics"] for event in events(place, whole)]
    assert len(steps) == 4
    assert all(math.isfinite(step[key]) for step in steps for key in ("loss", "grad_norm", "reward") if key in step)
    assert steps[-1]["updates"] >= 2
    assert [step["age"] for step in steps] == ([0.0, 1.0, 2.0, 3.0] if METHODS[name].data_source == "sft_policy" else [0.0] * 4)
    assert (place / whole / "events.jsonl").read_bytes() == (place / halves / "events.jsonl").read_bytes()
    last = "checkpoints/step-000004"
    for file in ("model.safetensors", "training/optimiser.safetensors"):
        assert filecmp.cmp(place / whole / last / file, place / halves / last / file, shallow=False), file
    if METHODS[name].value is not None:
        critic = f"{last}/training/critic.safetensors"
        assert filecmp.cmp(place / whole / critic, place / halves / critic, shallow=False)
    counted = events(place, whole, "parameters")[0]
    body = counted["policy_parameters"]  # the head is tied, so the body has them all
    assert counted["value_parameters"] == (body + 33 if METHODS[name].value is not None else 0)
    assert (counted["value_memory"] > 0) is (METHODS[name].value is not None)


def test_what_is_sampled_once_is_met_again_in_the_next_epoch(place: Path) -> None:
    from sharpen.tracking import completions

    run(place, "epochs", "method.name=rft", "training.steps=8")
    texts: dict[str, set[tuple[str, ...]]] = {}
    for step in range(1, 9):
        rows = completions.read(completions.path_of(place / "epochs" / "completions", step))
        for problem in {row["problem_id"] for row in rows}:
            texts.setdefault(problem, set()).add(tuple(row["completion"] for row in rows if row["problem_id"] == problem))
    assert len(texts) == 12
    assert all(len(found) == 1 for found in texts.values())


def test_the_value_model_can_be_warmed_up_alone(place: Path) -> None:
    run(place, "warm", "method.name=ppo", "training.value_warmup=2")
    steps = [event["metrics"] for event in events(place, "warm")]
    assert ["loss" in step for step in steps] == [False, False, True, True]
    assert steps[1]["updates"] == 0 < steps[3]["updates"]
    assert all(step["value_loss"] > 0 for step in steps)


def test_a_method_of_ones_own_from_a_file(place: Path) -> None:
    run(place, "mine", "method.file=mine.py", "method.name=best_of_group")
    assert len(events(place, "mine")) == 4
    with pytest.raises(RecipeError, match=r"(?s)there is no method 'best' in it.*It has: best_of_group"):
        run(place, "other", "method.file=mine.py", "method.name=best")
    assert not (place / "other").exists()


def test_demonstrations_must_be_there(place: Path) -> None:
    (place / "bare.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    with pytest.raises(ProblemError, match="no worked solution"):
        run(place, "bare", "method.name=sft", 'problems.train={source="file", path="bare.jsonl"}')


def test_evaluations_on_the_way_resume_exactly_too(place: Path) -> None:
    held_out = [
        'problems.held_out={source="arithmetic", levels=[3], split="held_out", count=3}',
        "evaluation.every=1",
        "evaluation.samples=2",
        "evaluation.ks=[1, 2]",
    ]
    run(place, "watched-whole", *held_out)
    run(place, "watched-halves", *held_out, "training.steps=2")
    run(place, "watched-halves", *held_out, resume=True)
    found = events(place, "watched-whole", "evaluation")
    assert [event["step"] for event in found] == [1, 2, 3, 4]
    assert all(set(event["figures"]["pass_at_k"]) == {"1", "2"} for event in found)
    assert (place / "watched-whole" / "events.jsonl").read_bytes() == (place / "watched-halves" / "events.jsonl").read_bytes()
    after = json.loads((place / "watched-whole" / "evaluation" / "comparison.json").read_text())["after"]
    assert found[-1]["figures"]["pass_at_k"] == after["pass_at_k"]
