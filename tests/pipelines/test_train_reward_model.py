"""Training a reward model from end to end: outcomes, steps and preferences; what was killed goes on; what cannot be used is told."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from dying import Killed, dies
from sharpen.errors import ModelError, ProblemError, RecipeError, RewardError, RunError, SharpenError
from sharpen.models import reward_model as models
from sharpen.pipelines.reward_model import TrainedRewardModel, train_reward_model
from sharpen.pipelines.reward_recipe import load_reward_recipe
from sharpen.recipe import load_recipe
from sharpen.reports.reward_model import tables
from sharpen.rewards import labels
from tiny import build_tiny

# A random model writes characters at random: about half of its completions have one that the pattern finds.
OUTCOME = """
reward_model = "outcome"
model = "{place}/model"
seed = 2
output = "{place}/{name}"

[problems.train]
source = "file"
path = "problems.jsonl"
kind = "regex"
answer_extraction = "none"

[samples]
per_problem = 6
max_new_tokens = 6
max_rows = 8
require_stop = false

[fit]
dtype = "float32"
learning_rate = 3e-3
epochs = 2
batch_size = 16
checkpoint_every = 3
"""
PAIRS = """
reward_model = "preference"
model = "{place}/model"
output = "{place}/{name}"

[pairs]
path = "pairs.jsonl"

[fit]
dtype = "float32"
learning_rate = 3e-3
epochs = 4
batch_size = 8
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reward_model")
    build_tiny(folder / "model")
    rows = [{"question": f"Say {i}", "answer": "(?s).*[a-m%8>^].*"} for i in range(15)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hard = [{"question": f"Say {i}", "answer": "zzzzzzzzz"} for i in range(7)]
    (folder / "hard.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hard))
    pairs = [{"prompt": f"Question {i % 10}?", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(40)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    return folder


def recipe_file(place: Path, name: str, text: str = OUTCOME) -> Path:
    path = place / f"{name}.toml"
    path.write_text(text.format(place=place, name=name))
    return path


def made(place: Path, name: str, *overrides: str, text: str = OUTCOME) -> TrainedRewardModel:
    path = recipe_file(place, name, text)
    return train_reward_model(load_reward_recipe(path, overrides), recipe_path=path)


@pytest.fixture(scope="module")
def whole(place: Path) -> TrainedRewardModel:
    return made(place, "whole")


def test_from_samples_to_figures(place: Path, whole: TrainedRewardModel) -> None:
    assert whole.new and whole.folder == place / "whole/model"
    fitted, held_out = (labels.read(place / "whole/data" / f"{name}.parquet") for name in ("train", "held_out"))
    # 15 problems: a fifth is held out, and no problem is on both sides
    assert len(fitted) == 12 * 6 and len(held_out) == 3 * 6
    assert {one.problem_id for one in fitted}.isdisjoint(one.problem_id for one in held_out)
    assert {one.label for one in fitted} == {0.0, 1.0}
    rows = pq.read_table(place / "whole/data/completions-train.parquet").to_pylist()
    assert [row["reward"] for row in rows] == [one.label for one in fitted]
    assert [tuple(row["tokens"]) for row in rows] == [one.completion_tokens for one in fitted]
    assert whole.figures["fit"]["updates"] == 2 * 5  # 72 completions in batches of 16
    assert whole.figures["fit"]["first_loss"] == pytest.approx(0.693147, abs=1e-5)
    assert whole.quality.examples == 18 and whole.quality.problems == 3
    assert sum(one.count for one in whole.quality.reliability) == 18

    model = models.load(str(whole.folder), kind="outcome", dtype="float32", device="cpu")
    assert model.about["template"]["name"] == "chat" and model.about["base"] == str(place / "model")
    judged = pq.read_table(place / "whole/judged.parquet").to_pylist()
    logits = model.score([one.prompt_tokens for one in held_out], [one.completion_tokens for one in held_out])
    assert [row["logit"] for row in judged] == pytest.approx(logits, abs=1e-5)
    right = sum((row["logit"] > 0) == (row["label"] == 1) for row in judged) / 18
    assert whole.quality.accuracy.value == pytest.approx(right)
    assert model.about["figures"]["accuracy"] == pytest.approx(right)
    assert (whole.folder / "reliability.png").read_bytes()[:4] == b"\x89PNG"
    assert not (place / "whole/fit/checkpoints").exists()
    assert [table.title for table in tables(whole.quality, whole.figures["fit"])][1] == "Reliability"


def test_a_finished_one_is_shown_again_and_other_settings_are_refused(place: Path, whole: TrainedRewardModel) -> None:
    again = made(place, "whole")
    assert not again.new and again.figures == whole.figures
    with pytest.raises(RecipeError, match=r"other settings, which is left as it is: fit\.epochs"):
        made(place, "whole", "fit.epochs=3")
    (place / "taken").mkdir()
    (place / "taken/file").touch()
    with pytest.raises(SharpenError, match="there is something already"):
        made(place, "taken")


@pytest.mark.parametrize(
    ("module", "name", "count"),
    [
        ("sharpen.evaluation.in_parts", "evaluate", 2),
        ("sharpen.training.reward_fit", "backward", 5),
        ("sharpen.models.reward_model", "_one", 11),
    ],
)
def test_killed_anywhere_it_goes_on_to_the_same_model(
    place: Path, whole: TrainedRewardModel, monkeypatch: pytest.MonkeyPatch, module: str, name: str, count: int
) -> None:
    import importlib

    there = importlib.import_module(module)
    with monkeypatch.context() as patched:
        patched.setattr(there, name, dies(count, getattr(there, name)))
        with pytest.raises(Killed):
            made(place, f"killed-{name}")
    again = made(place, f"killed-{name}")
    assert again.new
    for file in ("model.safetensors", "figures.json"):
        assert filecmp.cmp(whole.folder / file, again.folder / file, shallow=False), file
    for file in ("data/train.parquet", "judged.parquet", "fit/fit.jsonl"):
        assert filecmp.cmp(place / "whole" / file, place / f"killed-{name}" / file, shallow=False), file


def test_preferences(place: Path) -> None:
    found = made(place, "pairs", text=PAIRS)
    # the 10 prompts are what is divided: 2 are held out, with 4 pairs each
    assert (found.quality.kind, found.quality.examples, found.quality.problems) == ("pairs", 8, 2)
    assert found.quality.accuracy.value == 1.0  # good and bad are easily told apart
    assert found.figures["fit"]["last_loss"] < 0.5 < found.figures["fit"]["first_loss"]
    assert found.figures["fit"]["positive"] is None
    model = models.load(str(found.folder), dtype="float32", device="cpu")
    assert model.about["reward_model"] == "preference" and model.kind == "outcome"


def test_steps_by_the_rule(place: Path) -> None:
    (place / "own.py").write_text(
        "def letters(steps, **_):\n    return [[float(any(c in 'abcdefghijklm' for c in text)) for text in one] for one in steps]\n"
    )
    steps = ("reward_model=process", "steps.function=own.py:letters", "steps.splitter=marked", 'steps.marker="[%^|]"')
    found = made(place, "steps", *steps, "samples.max_new_tokens=24")
    assert found.quality.kind == "steps" and found.quality.examples >= 18
    fitted = labels.read(place / "steps/data/train.parquet")
    # the last step's label is the completion's
    assert all(one.steps[-1] == (len(one.completion_tokens) - 1, one.label) for one in fitted)
    model = models.load(str(found.folder), kind="process", dtype="float32", device="cpu")
    assert model.about["steps"] == {"splitter": "marked", "marker": "[%^|]", "marker_place": "begin"}


def test_labels_of_a_file(place: Path, whole: TrainedRewardModel) -> None:
    text = (
        OUTCOME[: OUTCOME.index("[problems.train]")] + f'labels = "{place}/whole/data/train.parquet"\n' + OUTCOME[OUTCOME.index("[fit]") :]
    )
    found = made(place, "labels", text=text)
    assert found.quality.problems == 2 and found.figures["fit"]["problems"] == 10


def test_what_cannot_be_used_is_told(place: Path, tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="to learn from: all 36 labels are 0, so there is nothing to tell apart"):
        made(place, "hard", "problems.train.path=hard.jsonl")
    with pytest.raises(RewardError, match=r"None of \d+ completions ended within samples\.max_new_tokens = 1"):
        made(place, "cut", "samples.require_stop=true", "samples.max_new_tokens=1", "seed=5")
    with pytest.raises(ProblemError, match="there are 1 to divide"):
        made(place, "one", "samples.limit=1")
    with pytest.raises(ModelError, match="No model 'nowhere'"):
        made(place, "nobase", "base=nowhere", "samples.limit=4")
    other = build_tiny(tmp_path / "other")
    tokenizer = models.loading.load_tokenizer(other, "other")
    tokenizer.add_tokens(["<more>"])
    module = models.loading.load_weights(other, "other", "float32", "cpu")
    module.resize_token_embeddings(len(tokenizer))
    module.save_pretrained(other)
    tokenizer.save_pretrained(other)
    with pytest.raises(RewardError, match=r"base: the tokens of .*other are not those of"):
        made(place, "tokens", f"base={other}")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"prompt": "a", "chosen": "b"}, r"jsonl:1: expected a text in 'rejected'; it has prompt, chosen"),
        ({"prompt": "a", "chosen": "b", "rejected": 3}, "expected a text in 'rejected'; it is none"),
        ({"prompt": "a", "chosen": None, "rejected": "c"}, "expected a text in 'chosen'; it is empty"),
        ({"prompt": " ", "chosen": "b", "rejected": "c"}, "expected a text in 'prompt'"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "are the same text"),
    ],
)
def test_malformed_pairs_are_told_without_their_text(place: Path, row: dict[str, object], what: str) -> None:
    (place / "bad.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ProblemError, match=what):
        made(place, f"bad-{len(what)}", "pairs.path=bad.jsonl", text=PAIRS)


def test_recipes(place: Path) -> None:
    path = recipe_file(place, "recipe")
    with pytest.raises(RecipeError, match=r"unknown key 'fit\.epoch'\. Did you mean 'epochs'"):
        load_reward_recipe(path, ["fit.epoch=2"])
    with pytest.raises(RecipeError, match=r"pairs: expected for a reward model of kind preference, got \['problems'\]"):
        load_reward_recipe(path, ["reward_model=preference"])
    with pytest.raises(RecipeError, match="reward_model: Input should be 'outcome', 'process' or 'preference', got 'result'"):
        load_reward_recipe(path, ["reward_model=result"])
    with pytest.raises(RecipeError, match=r"it trains a reward model\.\n.*sharpen train-reward-model"):
        load_recipe(path)
    with pytest.raises(RecipeError, match=r"'model' would learn from itself"):
        load_reward_recipe(path, ["reward_model=process", "steps.function=model", 'steps.parameters={path="x"}'])
    quickstart = Path(__file__).parents[2] / "recipes/quickstart.toml"
    with pytest.raises(RecipeError, match=r"it trains a policy\.\n.*sharpen train "):
        load_reward_recipe(quickstart)


def test_what_it_was_begun_with_is_kept(place: Path, whole: TrainedRewardModel, tmp_path: Path) -> None:
    assert json.loads((place / "whole/begun.json").read_text())["threads"] == torch.get_num_threads()
    policy = build_tiny(tmp_path / "policy")
    with pytest.raises(RewardError, match="all 72 labels are 0"):
        made(place, "changed", f"model={policy}", "problems.train.path=hard.jsonl", "held_out_share=0.01", "samples.per_problem=12")
    build_tiny(policy, seed=3)
    with pytest.raises(RunError, match=r"it was begun with other weights of .*policy"):
        made(place, "changed", f"model={policy}", "problems.train.path=hard.jsonl", "held_out_share=0.01", "samples.per_problem=12")


@pytest.mark.slow
def test_preferences_of_people(place: Path, data_dir: Path) -> None:
    source = data_dir / "pairs" / "hh_harmless_test.jsonl"
    if not source.is_file():
        pytest.skip(f"there is no {source}")
    found = made(place, "harmless", f"pairs.path={source}", "pairs.limit=60", "fit.epochs=1", text=PAIRS)
    assert found.quality.kind == "pairs" and found.quality.examples >= 1
