"""Iterative GRPO: what each stage begins with, the replayed share, and going on after a kill at any place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dying import Killed, dies
from sharpen import bundled
from sharpen.errors import RecipeError, RunError
from sharpen.pipelines import iterative, reward_model
from sharpen.pipelines.iterative import Iterated, iterate, round_recipe
from sharpen.pipelines.iterative_recipe import load_iterative
from sharpen.reports import iterative as report
from sharpen.rewards import labels
from sharpen.rollout.rollout import Rollout
from sharpen.tracking import events
from sharpen.training import reward_fit, run_folder
from sharpen.training.loop import Trainer
from tiny import build_tiny

RECIPE = """
rounds = 2
output = "it"

[policy]
recipe = "policy.toml"

[reward_model]
recipe = "reward.toml"
"""
POLICY = """
model = "{place}/model"
seed = 3

[problems.train]
source = "file"
path = "train.jsonl"
kind = "regex"
answer_extraction = "none"

[problems.held_out]
source = "file"
path = "held_out.jsonl"
kind = "regex"
answer_extraction = "none"

[rollout]
problems = 2
group_size = 4
max_new_tokens = 6

[[rewards.functions]]
function = "model"
parameters = {{ path = "the newest", dtype = "float32" }}

[method]
name = "grpo"
kl_coef = 0.04

[training]
dtype = "float32"
steps = 3
learning_rate = 1e-3

[checkpoint]
every = 1

[evaluation]
samples = 2
ks = [1, 2]
require_stop = false
"""
REWARD = """
reward_model = "outcome"
model = "{place}/model"
seed = 2

[problems.train]
source = "file"
path = "train.jsonl"
kind = "regex"
answer_extraction = "none"

[problems.held_out]
source = "file"
path = "held_out.jsonl"
kind = "regex"
answer_extraction = "none"

[samples]
per_problem = 5
max_new_tokens = 6
require_stop = false

[fit]
dtype = "float32"
learning_rate = 3e-3
batch_size = 16
checkpoint_every = 1
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("iterative")
    build_tiny(folder / "model")
    # A random model writes characters at random: about half of its completions have one that the pattern finds.
    for name, numbers in (("train", range(9)), ("held_out", range(9, 13))):
        rows = [{"question": f"Say {i}", "answer": "(?s).*[a-m%8>^].*"} for i in numbers]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "policy.toml").write_text(POLICY.format(place=folder))
    (folder / "reward.toml").write_text(REWARD.format(place=folder))
    (folder / "iterative.toml").write_text(RECIPE)
    return folder


def run(place: Path, working: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Iterated:
    working.mkdir(exist_ok=True)
    monkeypatch.chdir(working)
    return iterate(load_iterative(place / "iterative.toml", overrides))


@pytest.fixture(scope="module")
def whole(place: Path) -> Iterated:
    with pytest.MonkeyPatch.context() as patch:
        return run(place, place / "whole", patch)


def tree(folder: Path) -> dict[str, bytes]:
    """Everything that equal runs have equal; not what tells of times, machines, processes and plots."""
    apart = ("timings.jsonl", "environment.json", "begun.json", ".lock", "reliability.png")
    kept = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in apart)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def metrics(run: Path) -> list[dict[str, float]]:
    return [entry["metrics"] for entry in events.read(run / "events.jsonl") if entry["event"] == "step"]


def test_each_round_begins_with_the_policy_before_and_its_own_reference(place: Path, whole: Iterated) -> None:
    folder = place / "whole" / "it"
    for number in (1, 2):
        steps = metrics(folder / f"round-{number}")
        assert len(steps) == 3
        assert steps[0]["kl"] == 0.0  # the reference is the policy, bit for bit
        assert steps[-1]["kl"] > 1e-6
    model = (folder / "round-1/model/model.safetensors").read_bytes()
    assert model != (place / "model/model.safetensors").read_bytes()
    recipe = (folder / "round-2/recipe.toml").read_text()
    assert 'model = "it/round-1/model"' in recipe and 'path = "it/reward-1/model"' in recipe
    assert 'path = "it/reward-0/model"' in (folder / "round-1/recipe.toml").read_text()
    # different random numbers: the rounds do not meet the problems in one order
    assert round_recipe(load_iterative(place / "iterative.toml").recipe, folder, 2).seed != 3
    assert whole.model == Path("it/round-2/model")


def test_a_tenth_of_all_earlier_examples_is_replayed(place: Path, whole: Iterated) -> None:
    folder = place / "whole" / "it"
    sizes = [len(labels.read(folder / f"reward-{number}/data/train.parquet")) for number in range(3)]
    assert sizes == [45, 45, 45]  # 9 problems × 5 samples each
    # round(0.1 × 45) = round(4.5) = 4 (to even), round(0.1 × 90) = 9
    assert [stage.replayed for stage in whole.rewards] == [0, 4, 9]
    assert [stage.examples for stage in whole.rewards] == [45, 49, 54]
    # each goes on from the one before, which is judged on the same fresh samples
    assert whole.rewards[0].before is None
    for number in (1, 2):
        stage = whole.rewards[number]
        assert stage.before is not None and stage.before.examples == stage.after.examples == 20
        card = json.loads((folder / f"reward-{number}/model/reward_model.json").read_text())
        assert card["base"] == f"it/reward-{number - 1}/model" and card["model"] == f"it/round-{number}/model"
    prompts = {one.prompt_tokens for one in labels.read(folder / "reward-1/data/train.parquet")}
    assert prompts == {one.prompt_tokens for one in labels.read(folder / "reward-0/data/train.parquet")}


def test_what_is_replayed_is_of_the_earlier_files_and_of_no_held_out_problem(place: Path, whole: Iterated) -> None:
    from sharpen.pipelines.reward_data import Examples, _with_replay
    from sharpen.pipelines.reward_recipe import ReplaySettings, load_reward_recipe

    files = [str(place / f"whole/it/reward-{number}/data/train.parquet") for number in range(2)]
    earlier = [one for file in files for one in labels.read(Path(file))]
    recipe = load_reward_recipe(place / "reward.toml").model_copy(update={"replay": ReplaySettings(files=files, share=0.1)})
    new = labels.read(place / "whole/it/reward-2/data/train.parquet")
    found = _with_replay(recipe, place, Examples(fitted=[*new], held_out=[]))
    assert found.fitted[:45] == new and found.replayed == 9
    assert all(one in earlier for one in found.fitted[45:]) and len(found.fitted) == 54
    # of a problem that is judged on nothing is replayed: 80 are left, and a tenth of them
    held_out = [one for one in new if one.problem_id == new[0].problem_id]
    apart = _with_replay(recipe, place, Examples(fitted=[], held_out=[*held_out]))
    assert apart.replayed == 8 and all(one.problem_id != new[0].problem_id for one in apart.fitted)


MOMENTS = {
    "first samples": (Rollout, "sample", 1),
    "samples of round 1": (Rollout, "sample", 5),
    "first fit, its second update": (reward_fit, "backward", 2),
    "fit after round 1, its second update": (reward_fit, "backward", 5),
    "fit after round 2, its last update": (reward_fit, "backward", 11),
    "round 1, step 2": (Trainer, "step", 2),
    "round 2, step 1": (Trainer, "step", 4),
    "round 2, saving step 2": (Trainer, "save", 5),
    "round 1, exporting": (run_folder.RunFolder, "export", 1),
    "between round 1 and its reward model": (iterative, "train_reward_model", 2),
    "between reward model 1 and round 2": (iterative, "train", 2),
    "judging the reward model after round 1": (reward_model, "judge", 3),
    "the last summary": (iterative, "_plain", 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_was_killed_goes_on_to_the_same_bits(
    place: Path, whole: Iterated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    owner, name, count = MOMENTS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies(count, getattr(owner, name)))
        with pytest.raises(Killed):
            run(place, tmp_path / "killed", patch)
    again = run(place, tmp_path / "killed", monkeypatch)
    assert tree(tmp_path / "killed/it") == tree(place / "whole/it")
    assert again == whole


def test_a_finished_one_is_shown_and_goes_on_with_more_rounds(
    place: Path, whole: Iterated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run(place, tmp_path / "one", monkeypatch, "rounds=1")
    assert one == Iterated(folder=whole.folder, rounds=whole.rounds[:1], rewards=whole.rewards[:2])
    with monkeypatch.context() as patch:  # nothing is done twice
        patch.setattr(Trainer, "step", dies(1, Trainer.step))
        assert run(place, tmp_path / "one", patch, "rounds=1") == one
    assert run(place, tmp_path / "one", monkeypatch) == whole
    assert tree(tmp_path / "one/it") == tree(place / "whole/it")


def test_other_settings_are_refused(place: Path, whole: Iterated, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"iterative training with other settings.*policy\.training\.steps"):
        run(place, place / "whole", monkeypatch, "policy.settings.training.steps=4")
    (place / "whole/full").mkdir()
    (place / "whole/full/file").touch()
    with pytest.raises(RunError, match="there is something already"):
        run(place, place / "whole", monkeypatch, "output=full")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reward_model.settings.model=tiny", r"reward_model\.model: expected the policy's"),
        ("reward_model.settings.template.name=plain", r"reward_model\.template: expected the policy's"),
        ("reward_model.settings.reward_model=process", r"no function 'model' in \[rewards\.steps\]"),
        ('policy.settings.rewards.functions=[{function="accuracy"}]', r"no function 'model' in \[\[rewards\.functions\]\]"),
        ("replay=1.5", "replay"),
        ("rounds=0", "rounds"),
        ("reply=0.2", r"unknown key 'reply'\. Did you mean 'replay'"),
        ("policy.recipe=nowhere.toml", "no such file"),
    ],
)
def test_settings_that_do_not_fit_are_told(place: Path, override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_iterative(place / "iterative.toml", [override])


def test_a_process_model_is_the_newest_for_steps_and_for_the_whole() -> None:
    loaded = load_iterative(bundled.find_recipe(Path("iterative")))
    rewards = round_recipe(loaded.recipe, Path("it"), 2).rewards
    newest = str(Path("it/reward-1/model"))
    assert rewards.steps.parameters["path"] == newest
    assert [entry.parameters.get("path") for entry in rewards.functions] == [newest, None]
    assert [entry.weight for entry in rewards.functions] == [1.0, 0.0]
    assert loaded.recipe.reward_model.head == "process"


def test_tables_and_plot(place: Path, whole: Iterated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place / "whole")
    rounds, rewards = report.tables(whole)
    assert rounds.row_count == 2 and rewards.row_count == 3
    assert next(iter(rounds.columns[2].cells)).startswith("0 → ")
    assert list(rewards.columns[2].cells) == ["0", "4", "9"]
    assert report.plot(whole, tmp_path / "rounds.png").read_bytes()[:4] == b"\x89PNG"
    summary = json.loads((whole.folder / "rounds.json").read_text())
    assert [one["replayed"] for one in summary["reward_models"]] == [0, 4, 9]
    assert summary["rounds"][1]["first_step"]["kl"] == 0.0
