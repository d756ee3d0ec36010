"""A run that trains adapters: its reference, its checkpoints, and what it leaves."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from sharpen.errors import RecipeError, RunError
from sharpen.models.loading import load
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

[problems.held_out]
source = "arithmetic"
levels = [3]
split = "held_out"
count = 2

[rollout]
problems = 3
group_size = 4
max_new_tokens = 24

[[rewards.functions]]
function = "rewards.py:digits"

[method]
name = "grpo"
kl_coef = 0.04

[training]
steps = 4
num_iterations = 2
learning_rate = 1e-2
value_learning_rate = 1e-3
token_budget = 256
dtype = "{dtype}"

[lora]
rank = 2
alpha = 8

[checkpoint]
every = 2

[evaluation]
samples = 2
ks = [1]
"""
REWARDS = """
def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    build_tiny(folder / "model")
    (folder / "rewards.py").write_text(REWARDS)
    for dtype in ("float32", "bfloat16"):
        (folder / f"{dtype}.toml").write_text(RECIPE.format(place=folder, dtype=dtype))
    return folder


def run(place: Path, name: str, *overrides: str, resume: bool = False, dtype: str = "float32") -> RunResult:
    path = place / f"{dtype}.toml"
    return train(load_recipe(path, [f"output={place / name}", *overrides]), recipe_path=path, resume=resume)


def steps(folder: Path) -> list[dict[str, Any]]:
    return [e["metrics"] for e in map(json.loads, (folder / "events.jsonl").read_text().splitlines()) if e["event"] == "step"]


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    result = run(place, "whole")
    assert result.memory.reference == 0
    return place / "whole"


def files(folder: Path) -> list[str]:
    # recipe.toml names its own folder, timings and starts differ, and manifests are compared through the files they name
    skipped = ("recipe.toml", "timings.jsonl", "environment.json", ".lock", "manifest.json")
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name not in skipped)


def test_the_policy_begins_as_its_reference_and_moves_away(place: Path, whole: Path) -> None:
    run(place, "once", "training.steps=2", "training.num_iterations=1")
    assert steps(place / "once")[0]["kl"] == 0.0  # exactly: the adapter adds zeros
    assert steps(place / "once")[1]["kl"] > 0.0
    found = steps(whole)
    assert [step["updates"] for step in found] == [2, 4, 6, 8]
    assert found[-1]["kl"] > found[1]["kl"] > 0.0


def test_only_adapters_are_counted_as_trained(whole: Path) -> None:
    counted = json.loads((whole / "events.jsonl").read_text().splitlines()[0])
    # rank · (in + out): q, o 32 → 32, k, v 32 → 16, gate, up 32 → 64, down 64 → 32, in each of two layers
    assert counted["policy_parameters"] == 2 * 2 * (2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 64))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(place: Path, whole: Path, dtype: str) -> None:
    if dtype == "bfloat16":
        run(place, "whole-bfloat16", dtype=dtype)
    uninterrupted, halves = place / ("whole" if dtype == "float32" else "whole-bfloat16"), place / f"halves-{dtype}"
    run(place, halves.name, "training.steps=2", dtype=dtype)
    run(place, halves.name, resume=True, dtype=dtype)
    last = "checkpoints/step-000004"
    names = files(uninterrupted)
    assert {f"{last}/model.safetensors", f"{last}/adapter/adapter_model.safetensors", f"{last}/training/optimiser.safetensors"} <= set(
        names
    )
    assert files(halves) == names
    for name in names:
        if not name.startswith("evaluation/"):  # the halves were evaluated after step 2 as well
            assert filecmp.cmp(uninterrupted / name, halves / name, shallow=False), name
    assert (uninterrupted / "evaluation/after.parquet").read_bytes() == (halves / "evaluation/after.parquet").read_bytes()


def test_what_it_leaves_loads_elsewhere(place: Path, whole: Path) -> None:
    from peft import PeftModel

    tokens = torch.tensor([[1, 20, 21, 22, 23, 24]])
    with torch.no_grad():
        exported = AutoModelForCausalLM.from_pretrained(whole / "model").eval()(tokens).logits
        base = AutoModelForCausalLM.from_pretrained(place / "model").eval()
        before = base(tokens).logits
        on_top = PeftModel.from_pretrained(base, whole / "adapter").eval()(tokens).logits
    torch.testing.assert_close(on_top, exported, atol=1e-5, rtol=1e-5)
    assert (exported - before).abs().max() > 1e-3
    assert load(str(whole / "model")).stop_ids == (2, 3)
    assert sorted(path.name for path in (whole / "adapter").iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    config = json.loads((whole / "adapter/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str((place / "model").resolve())


def test_a_value_model_goes_with_it(place: Path) -> None:
    run(place, "ppo", "method.name=ppo", "training.steps=2")
    run(place, "ppo-halves", "method.name=ppo", "training.steps=1")
    run(place, "ppo-halves", "method.name=ppo", "training.steps=2", resume=True)
    assert all(step["value_loss"] > 0 for step in steps(place / "ppo"))
    for name in ("model.safetensors", "adapter/adapter_model.safetensors", "training/critic.safetensors", "training/optimiser.safetensors"):
        path = f"checkpoints/step-000002/{name}"
        assert filecmp.cmp(place / "ppo" / path, place / "ppo-halves" / path, shallow=False), name


def test_an_adapter_goes_on_with_the_model_it_began_with_only(place: Path, whole: Path, tmp_path: Path) -> None:
    build_tiny(tmp_path / "model")
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "float32.toml").write_text(RECIPE.format(place=tmp_path, dtype="float32"))
    run(tmp_path, "run", "training.steps=1")
    build_tiny(tmp_path / "model", seed=1)
    with pytest.raises(RunError, match=r"its adapter was trained on another model: 'model\.embed_tokens\.weight' differs"):
        run(tmp_path, "run", resume=True)


def test_settings_that_cannot_be(place: Path) -> None:
    with pytest.raises(RecipeError, match=r"unknown key 'lora\.rnak'\. Did you mean 'rank'\?"):
        run(place, "bad", "lora.rnak=4")
    with pytest.raises(RecipeError, match=r"lora\.dropout: training needs adapters without dropout \(0\), got 0\.1"):
        run(place, "bad", "lora.dropout=0.1")
    with pytest.raises(RecipeError, match=r'lora\.target_modules: expected "all-linear" or a list of names.*got "q_proj"'):
        run(place, "bad", "lora.target_modules=q_proj")
    with pytest.raises(RecipeError, match=r"training\.reference_sync: 0 only with \[lora\], got 2"):
        run(place, "bad", "training.reference_sync=2")
    with pytest.raises(RecipeError, match=r"(?s)no linear layer 'query'.*It has: down_proj, gate_proj, k_proj, lm_head"):
        run(place, "bad", 'lora.target_modules=["query"]')
    assert not (place / "bad").exists()
