"""The settings of iterative GRPO: a TOML file that names the recipe of its training and that of its reward model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from sharpen import bundled, settings_file
from sharpen.pipelines.compare_methods import flat
from sharpen.pipelines.reward_recipe import RewardRecipe, load_reward_recipe
from sharpen.recipe import Recipe, Section, load_recipe
from sharpen.rewards.learned_settings import LEARNED


class PartSettings(Section):
    """A recipe, and what is changed in it."""

    recipe: str = Field(description="a file beside this one, or one that comes with sharpen")
    settings: dict[str, Any] = Field(default_factory=dict, description="over the recipe's")


class IterativeSettings(Section):
    """The file's keys."""

    rounds: int = Field(2, ge=1, description="of training; after each, the reward model goes on on its samples")
    replay: float = Field(0.1, ge=0.0, le=1.0, description="share of all earlier labelled completions that each later fit is given again")
    output: str | None = Field(None, description="the folder of all stages; left out, runs/NAME after the file")
    policy: PartSettings
    reward_model: PartSettings


class IterativeRecipe(Section):
    """The same with both recipes as resolved."""

    rounds: int = Field(ge=1)
    replay: float = Field(ge=0.0, le=1.0)
    policy: Recipe
    reward_model: RewardRecipe

    @model_validator(mode="after")
    def _fits(self) -> IterativeRecipe:
        policy, learned = self.policy, self.reward_model
        if learned.reward_model == "preference" or learned.problems is None:
            raise ValueError(
                "reward_model: expected an outcome or a process model that learns from samples of [problems]; labels and pairs of a "
                "file do not follow the policy"
            )
        for name in ("model", "template"):
            if getattr(policy, name) != getattr(learned, name):
                raise ValueError(
                    f"reward_model.{name}: expected the policy's, {getattr(policy, name)}, got {getattr(learned, name)}: the reward model "
                    "judges what the policy writes"
                )
        by_steps = policy.rewards.steps.function == LEARNED
        by_completions = any(entry.function == LEARNED and entry.weight for entry in policy.rewards.functions)
        if not (by_steps if learned.head == "process" else by_completions):
            where = "[rewards.steps]" if learned.head == "process" else "[[rewards.functions]] with a weight"
            raise ValueError(f"policy: its rewards have no function 'model' in {where}, so it would not be trained by this reward model")
        return self


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An iterative recipe with the places it was read from.

    Attributes:
        recipe: the settings.
        policy_path: the policy's recipe file; relative files in it are looked for beside it.
        reward_path: the reward model's.
        output: the folder of all stages.
    """

    recipe: IterativeRecipe
    policy_path: Path
    reward_path: Path
    output: Path


def load_iterative(path: str | Path, overrides: Iterable[str] = ()) -> Loaded:
    """Read the settings, and the recipes that they name, with overrides such as `rounds=3` or `policy.settings.training.steps=40`.

    Raises:
        RecipeError: no such file, not TOML, or not valid; every fault is named by its key.
    """
    path, fix = Path(path), "docs/iterative.md has every key."
    settings = settings_file.check(IterativeSettings, settings_file.read(path, overrides), where=f"recipe {path}", fix=fix)
    policy_path, reward_path = (_found(path, part) for part in (settings.policy, settings.reward_model))
    table = {
        "rounds": settings.rounds,
        "replay": settings.replay,
        "policy": load_recipe(policy_path, list(flat(settings.policy.settings))),
        "reward_model": load_reward_recipe(reward_path, list(flat(settings.reward_model.settings))),
    }
    recipe = settings_file.check(IterativeRecipe, table, where=f"recipe {path}", fix=fix)
    output = Path(settings.output) if settings.output is not None else Path("runs") / path.stem
    return Loaded(recipe=recipe, policy_path=policy_path, reward_path=reward_path, output=output)


def _found(path: Path, part: PartSettings) -> Path:
    beside = path.parent / part.recipe
    return beside if beside.is_file() else bundled.find_recipe(Path(part.recipe))
