"""A run from a recipe to a trained model, on a tiny one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sharpen.errors import ProblemError, RewardError, RunError
from sharpen.evaluation import record
from sharpen.models.loading import load
from sharpen.pipelines.compare import compare_evaluations
from sharpen.pipelines.evaluate import evaluate_model, source_from_text
from sharpen.pipelines.train import RunResult, train
from sharpen.problems.templates import Template
from sharpen.recipe import load_recipe
from sharpen.reports.terminal import run_report
from sharpen.rollout.engine import Sampling
from sharpen.rollout.torch_engine import TorchEngine
from sharpen.tracking import completions
from tiny import build_tiny

RECIPE = """
model = "{place}/model"
seed = 3
output = "{place}/run"

[problems.train]
source = "arithmetic"
levels = [1]

[problems.held_out]
source = "arithmetic"
levels = [1]
split = "held_out"
count = 6

[rollout]
problems = 8
group_size = 8
max_new_tokens = 8

[[rewards.functions]]
function = "rewards.py:letters"

[method]
kl_coef = 0.01

[training]
dtype = "float32"
steps = 25
learning_rate = 1e-2

[evaluation]
samples = 4
ks = [1, 4]
"""
REWARDS = """
def letters(completions, **_):
    return [sum(c.isalpha() for c in text) / 8 for text in completions]

def never(completions, **_):
    return [None for _ in completions]

def breaks(completions, **_):
    raise RuntimeError("this one is broken")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    build_tiny(tmp_path / "model")
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(place=tmp_path))
    return tmp_path


def run(place: Path, *overrides: str) -> RunResult:
    path = place / "recipe.toml"
    return train(load_recipe(path, overrides), recipe_path=path)


def metrics(place: Path) -> list[dict[str, float]]:
    return [e["metrics"] for e in map(json.loads, (place / "run" / "events.jsonl").read_text().splitlines()) if e["event"] == "step"]


def test_it_learns_and_leaves_a_plain_model(place: Path) -> None:
    result = run(place)
    found = metrics(place)
    rewards = [m["reward"] for m in found]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.2, rewards
    assert found[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert found[-1]["kl"] > 0.01
    assert found[0]["clip_fraction"] == 0.0
    assert max(m["engine_gap_max"] for m in found) < 1e-4  # float32: engine and trainer agree
    assert result.comparison is not None
    assert result.comparison.before.samples == 4

    # plain transformers loads it and writes the same greedy text as sharpen's own engine
    folder = place / "run" / "model"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "What is 2 * 3?"}], add_generation_prompt=True)["input_ids"]
    theirs = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :].tolist()
    loaded = load(str(folder))
    ours = TorchEngine(loaded.model, loaded.stop_ids).sample([tuple(prompt)], [[0]], Sampling(max_new_tokens=20, temperature=0))[0][0]
    assert list(ours.tokens) == theirs
    assert loaded.stop_ids == (2, 3)


def test_each_tokens_advantage_and_the_environment_are_kept(place: Path) -> None:
    run(place, "training.steps=1")
    rows = completions.read(place / "run" / "completions" / "step-000001.parquet")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    for members in groups.values():
        rewards = torch.tensor([row["reward"] for row in members], dtype=torch.float64)
        for row, reward in zip(members, rewards.tolist(), strict=True):
            expected = (reward - float(rewards.mean())) / (float(rewards.std()) + 1e-4)
            assert row["advantages"] == pytest.approx([expected] * row["length"], abs=1e-5)
    (start,) = json.loads((place / "run" / "environment.json").read_text())["starts"]
    assert (start["from_step"], start["device"], start["packages"]["torch"]) == (1, "cpu", torch.__version__)
    assert {"dtype", "threads", "token_budget", "processor", "system", "python"} <= set(start)


def test_a_checkpoint_is_a_model_too(place: Path) -> None:
    run(place, "training.steps=2", "checkpoint.every=1", "checkpoint.keep=5")
    first, last = (place / "run" / "checkpoints" / f"step-{i:06d}" for i in (1, 2))
    a, b = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (first, last))
    assert any(not torch.equal(a[name], b[name]) for name in a)
    exported = AutoModelForCausalLM.from_pretrained(place / "run" / "model").state_dict()
    assert all(torch.equal(exported[name], b[name]) for name in b)


def test_only_the_newest_checkpoints_stay(place: Path) -> None:
    run(place, "training.steps=5", "checkpoint.every=2", "checkpoint.keep=2")
    assert sorted(p.name for p in (place / "run" / "checkpoints").iterdir()) == ["step-000004", "step-000005"]


def test_equal_seeds_are_equal_runs_and_others_are_not(place: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(place, f"output={place / name}", f"seed={seed}", "training.steps=2")
    a, b, c = ((place / name / "events.jsonl").read_bytes() for name in "abc")
    assert a == b != c


def test_before_training_is_the_model_that_it_began_with(place: Path) -> None:
    for name, rate in (("fast", 0.1), ("still", 1e-12)):
        run(place, f"output={place / name}", "training.steps=1", f"training.learning_rate={rate}")
    fast, still = (
        {when: record.read(place / name / "evaluation" / f"{when}.json").results for when in ("before", "after")}
        for name in ("fast", "still")
    )
    assert fast["before"] == still["before"] == still["after"] != fast["after"]


def test_the_length_limit_follows_its_schedule(place: Path) -> None:
    run(place, "training.steps=3", "rollout.max_new_tokens=[[1, 4], [3, 9]]")
    longest = [max(row["length"] for row in completions.read(completions.path_of(place / "run" / "completions", s))) for s in (1, 2, 3)]
    assert longest == [4, 4, 9]


def test_bfloat16_keeps_a_float32_master(place: Path) -> None:
    run(place, "training.dtype=bfloat16", "training.steps=2")
    folder = place / "run" / "checkpoints" / "step-000002"
    from safetensors.torch import load_file

    masters = {k.removeprefix("master/"): v for k, v in load_file(folder / "training" / "optimiser.safetensors").items() if "master/" in k}
    weights = load_file(folder / "model.safetensors")
    assert masters
    for name, master in masters.items():
        assert master.dtype == torch.float32
        nearest = ((master.view(torch.int32) + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)  # away from zero where two are as near
        assert torch.equal(nearest, weights[name]), name


def test_adafactor_where_the_recipe_asks_for_it(place: Path) -> None:
    run(place, "training.optimiser=adafactor", "training.steps=1")
    from safetensors.torch import load_file

    kept = load_file(place / "run" / "checkpoints" / "step-000001" / "training" / "optimiser.safetensors")
    assert {name.partition("/")[0] for name in kept} == {"step", "row_var", "col_var", "variance"}


def test_difficulty_keeps_problems_of_mixed_results(place: Path) -> None:
    (place / "problems.jsonl").write_text(
        "".join(json.dumps({"question": f"{i}", "answer": str(i), "id": str(i)}) + "\n" for i in range(12))
    )
    with pytest.raises(ProblemError, match=r"no problem has a pass rate above 0 and below 1"):
        # a random model answers none of these
        run(place, f"problems.train={{source='file', path='{place}/problems.jsonl', id_field='id'}}", "problems.difficulty.samples=2")


def test_held_out_problems_may_not_be_trained_on(place: Path) -> None:
    (place / "both.jsonl").write_text(json.dumps({"question": "What is 2 + 2?", "answer": "4"}) + "\n")
    source = f"{{source='file', path='{place}/both.jsonl'}}"
    with pytest.raises(ProblemError, match="1 held-out problems are trained on as well"):
        run(place, f"problems.train={source}", f"problems.held_out={source}")
    assert not (place / "run").exists()


def test_no_reward_at_all_stops_the_run(place: Path) -> None:
    with pytest.raises(RewardError, match=r"step 1: no completion could be scored; the first: never on problem"):
        run(place, "rewards.functions=[{function='rewards.py:never'}]")


def test_fail_fast_stops_before_any_work(place: Path) -> None:
    with pytest.raises(RewardError, match="this one is broken"):
        run(place, "rewards.functions=[{function='rewards.py:breaks'}]", "rewards.fail_fast=true")
    assert not (place / "run").exists()


def test_a_tracker_that_fails_does_not_stop_the_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def start(self, run_name, config):
            raise OSError("no room")

        def log(self, metrics, step):
            raise OSError("no room")

        def finish(self):
            raise OSError("no room")

    monkeypatch.setattr("sharpen.pipelines.train.load_trackers", lambda names, folder: [Broken()])
    run(place, "training.steps=1")
    assert (place / "run" / "model").is_dir()


def test_memory_that_cannot_be_had_is_told_before_the_first_step(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharpen.training.memory.available", lambda device: 1000)
    with pytest.raises(RunError, match=r"memory: this run needs about .* at its peak \(baseline .*, optimiser .*"):
        run(place, "rollout.max_rows=4096", "rollout.problems=64", "rollout.group_size=64")
    assert not (place / "run").exists()


def test_evaluation_of_a_model(place: Path) -> None:
    source = source_from_text("arithmetic:1:5")
    found = evaluate_model(
        str(place / "model"), source, samples=4, ks=[1, 2, 4], max_new_tokens=6, template=Template(), output=place / "measured"
    )
    assert (found.summary.problems, found.summary.samples) == (5, 4)
    assert set(found.summary.pass_at_k) == {1, 2, 4}
    assert len(completions.read(place / "measured" / "completions.parquet")) == 20
    saved = json.loads((place / "measured" / "evaluation.json").read_text())
    assert saved["summary"]["problems"] == 5
    assert len(found.record.results) == 5
    with pytest.raises(RunError, match="holds an evaluation"):
        evaluate_model(str(place / "model"), source, samples=1, ks=[1], output=place / "measured")


def test_a_run_keeps_its_verdict_and_an_interrupted_evaluation_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "recipe.toml"
    recipe = load_recipe(path, ["training.steps=1", "rollout.max_rows=2"])
    write, written = completions.write, []

    def write_or_stop(file: Path, *arguments: object) -> None:
        if file.name.startswith("part-"):  # of an evaluation, not a step's
            if written:
                raise KeyboardInterrupt
            written.append(file)
        write(file, *arguments)

    monkeypatch.setattr(completions, "write", write_or_stop)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, recipe_path=path)
    assert [p.name for p in (place / "run" / "evaluation").rglob("part-*")] == ["part-00000.parquet"]
    monkeypatch.setattr(completions, "write", write)
    result = train(recipe, recipe_path=path, resume=True)
    assert result.changes is not None
    kept = json.loads((place / "run" / "evaluation" / "comparison.json").read_text())
    assert kept["verdict"]["word"] == "no clear change"
    assert sorted(p.name for p in (place / "run" / "evaluation").iterdir()) == [
        "after.json", "after.parquet", "before.json", "before.parquet", "comparison.json",
    ]  # fmt: skip
    told = " ".join(str(part) for part in run_report(result))
    assert "Verdict: no clear change" in told
    found = compare_evaluations(place / "run")
    assert found.changes.verdict == result.changes.verdict
    assert compare_evaluations(place / "run", place / "run").changes.verdict is not None  # after training, both times
