"""Iterative GRPO (DeepSeekMath, arXiv:2402.03300, §4.1.4, Algorithm 1): rounds of RL by a reward model that follows the policy.

The reward model is fitted to graded samples of the policy. After each round it goes on from what it was, on graded samples of the new
policy and a share of all earlier ones; and the next round's reference is the policy that it begins with. Each stage is a run, or a reward
model, of its own, which the other commands can open; the same call goes on with whatever was interrupted.

OUTPUT/recipe.toml     both recipes as resolved
OUTPUT/reward-0/       the first reward model, as `train-reward-model` leaves it
OUTPUT/round-1/        the first round, as `train` leaves it
OUTPUT/reward-1/       the reward model after it, and so on
OUTPUT/rounds.json     what each stage came to
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpen import streams
from sharpen.evaluation.changes import Changes
from sharpen.evaluation.reward_quality import Quality
from sharpen.pipelines.iterative_recipe import IterativeRecipe, Loaded
from sharpen.pipelines.output_folder import claimed
from sharpen.pipelines.reward_model import FIGURES, train_reward_model
from sharpen.pipelines.reward_recipe import ReplaySettings, RewardRecipe
from sharpen.pipelines.train import train
from sharpen.recipe import Recipe
from sharpen.rewards.learned_settings import LEARNED
from sharpen.rewards.settings import RewardFunctionSettings
from sharpen.tracking import events
from sharpen.tracking.observer import Observer, Silent
from sharpen.training.run_folder import RunFolder

ROUNDS = "rounds.json"


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a round came to.

    Attributes:
        number: from 1.
        run: its folder.
        changes: the held-out problems before and after it; None without held-out problems.
        first: the metrics of its first step.
        last: the metrics of its last step.
    """

    number: int
    run: Path
    changes: Changes | None
    first: Mapping[str, float]
    last: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RewardStage:
    """A reward model on fresh samples of the policy that it was fitted to the samples of.

    Attributes:
        number: of the rounds before it, from 0.
        before: the one it goes on from, on those samples; None for the first.
        after: itself.
        examples: completions that it was fitted to, the replayed ones included.
        replayed: how many of them are earlier ones.
    """

    number: int
    before: Quality | None
    after: Quality
    examples: int
    replayed: int


@dataclass(frozen=True, kw_only=True)
class Iterated:
    """What iterative training leaves.

    Attributes:
        folder: of all stages.
        rounds: of training, in order.
        rewards: reward models, the first one before the first round.
    """

    folder: Path
    rounds: Sequence[Round]
    rewards: Sequence[RewardStage]

    @property
    def model(self) -> Path:
        """The trained model."""
        return RunFolder(self.rounds[-1].run).model


def iterate(loaded: Loaded, *, observer: Observer | None = None) -> Iterated:
    """Train by rounds; the same call goes on with what was interrupted, and with more rounds than before.

    Args:
        loaded: the settings.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used; finished stages stay as they are.
        Interrupted: a signal asked to stop; what was done is saved.
    """
    observer, output, recipe = observer or Silent(), loaded.output, loaded.recipe
    with claimed(output, recipe, "iterative training", free=("rounds",)):
        _reward_stage(loaded, 0, observer)
        for number in range(1, recipe.rounds + 1):
            _round(loaded, number, observer)
            _reward_stage(loaded, number, observer)
        found = read(output, recipe.rounds)
        RunFolder(output).write_json(output / ROUNDS, _plain(found))
    return found


def read(folder: Path, rounds: int) -> Iterated:
    """What the stages of a folder came to."""
    return Iterated(
        folder=folder,
        rounds=[_read_round(folder, number) for number in range(1, rounds + 1)],
        rewards=[_read_reward(folder, number) for number in range(rounds + 1)],
    )


def round_recipe(recipe: IterativeRecipe, output: Path, number: int) -> Recipe:
    """The recipe of a round: from the policy that the one before left, which is also its reference, by the newest reward model."""
    policy = recipe.policy
    path = str(output / f"reward-{number - 1}" / "model")

    def follows(entry: RewardFunctionSettings) -> RewardFunctionSettings:
        return entry.model_copy(update={"parameters": {**entry.parameters, "path": path}}) if entry.function == LEARNED else entry

    rewards: dict[str, Any] = {"functions": [follows(entry) for entry in policy.rewards.functions]}
    if recipe.reward_model.head == "process":
        steps = policy.rewards.steps
        rewards["steps"] = steps.model_copy(update={"parameters": {**steps.parameters, "path": path}})
    return policy.model_copy(
        update={
            "model": _model(recipe, output, number - 1),
            "seed": _seed(policy.seed, number - 1),
            "output": str(output / f"round-{number}"),
            "rewards": policy.rewards.model_copy(update=rewards),
        }
    )


def reward_recipe(recipe: IterativeRecipe, output: Path, number: int) -> RewardRecipe:
    """The recipe of the reward model after so many rounds."""
    learned = recipe.reward_model
    earlier = [str(output / f"reward-{k}" / "data" / "train.parquet") for k in range(number)]
    return learned.model_copy(
        update={
            "model": _model(recipe, output, number),
            "base": str(output / f"reward-{number - 1}" / "model") if number else learned.base,
            "seed": _seed(learned.seed, number),
            "output": str(output / f"reward-{number}"),
            "replay": ReplaySettings(files=earlier, share=recipe.replay) if earlier and recipe.replay else learned.replay,
        }
    )


def _model(recipe: IterativeRecipe, output: Path, rounds: int) -> str:
    """The policy after so many rounds."""
    return str(RunFolder(output / f"round-{rounds}").model) if rounds else recipe.policy.model


def _seed(seed: int, number: int) -> int:
    """Of a stage: a round that drew as the one before would sample the same problems by the same random numbers again."""
    return streams.derive(seed, "round", number) % 2**31 if number else seed


def _round(loaded: Loaded, number: int, observer: Observer) -> None:
    """One round, unless it is finished."""
    recipe = round_recipe(loaded.recipe, loaded.output, number)
    folder = RunFolder(Path(str(recipe.output)))
    done = folder.path / "done"
    if not done.is_file():
        observer.notice(
            f"round {number} of {loaded.recipe.rounds}: training by the reward model in {loaded.output / f'reward-{number - 1}'}"
        )
        train(recipe, recipe_path=loaded.policy_path, resume=folder.recipe.is_file(), observer=observer)
        _touch(done)
        gc.collect()  # the models, before others are loaded


def _reward_stage(loaded: Loaded, number: int, observer: Observer) -> None:
    recipe = reward_recipe(loaded.recipe, loaded.output, number)
    observer.notice(
        f"reward model {number}: {'goes on from the one before, on' if number else 'fitted to'} graded samples of {recipe.model}"
    )
    train_reward_model(recipe, recipe_path=loaded.reward_path, observer=observer)
    gc.collect()


def _touch(path: Path) -> None:
    temporary = path.with_suffix(".writing")
    temporary.touch()
    os.replace(temporary, path)


def _read_round(folder: Path, number: int) -> Round:
    run = RunFolder(folder / f"round-{number}")
    steps = [entry["metrics"] for entry in events.read(run.events) if entry["event"] == "step"]
    comparison = run.evaluation / "comparison.json"
    found = Changes.from_dict(json.loads(comparison.read_text(encoding="utf-8"))) if comparison.is_file() else None
    return Round(number=number, run=run.path, changes=found, first=steps[0], last=steps[-1])


def _read_reward(folder: Path, number: int) -> RewardStage:
    figures = json.loads((folder / f"reward-{number}" / "model" / FIGURES).read_text(encoding="utf-8"))
    return RewardStage(
        number=number,
        before=Quality.from_dict(figures["before"]) if number else None,
        after=Quality.from_dict(figures["held_out"]),
        examples=figures["fit"]["examples"],
        replayed=figures["fit"]["replayed"],
    )


def _plain(found: Iterated) -> dict[str, Any]:
    """The figures for JSON, but for those that each stage has written down itself."""
    return {
        "rounds": [
            {
                "round": one.number,
                "first_step": dict(one.first),
                "last_step": dict(one.last),
                "held_out": None if one.changes is None else one.changes.comparison.to_dict(),
            }
            for one in found.rounds
        ],
        "reward_models": [
            {
                "after_rounds": one.number,
                "examples": one.examples,
                "replayed": one.replayed,
                "on_fresh_samples": one.after.to_dict(),
                "the_one_before_on_them": None if one.before is None else one.before.to_dict(),
            }
            for one in found.rewards
        ],
    }
