"""The settings of a reward model's training: a TOML file of its own, whose key `reward_model` says what kind is made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from sharpen import settings_file
from sharpen.errors import RecipeError
from sharpen.grading.confined import SandboxKind
from sharpen.models.reward_folder import Kind
from sharpen.problems.source import Source
from sharpen.problems.templates import Template
from sharpen.recipe import Section
from sharpen.rewards.settings import StepSettings
from sharpen.training.reward_fit import FitSettings


class RewardProblems(Section):
    """Whose completions are learned from, `[problems]`."""

    train: Source = Field(description="what the completions to learn from are samples of")
    held_out: Source | None = Field(None, description="what the model is judged on; left out, a share of the training problems")


class SampleSettings(Section):
    """How the policy is sampled, `[samples]`."""

    per_problem: int = Field(8, ge=1, description="completions of each problem")
    temperature: float = Field(1.0, ge=0.0, description="of sampling")
    max_new_tokens: int = Field(256, ge=1, description="limit of a completion, in tokens")
    limit: int | None = Field(None, ge=1, description="only the first so many problems of each source")
    max_rows: int = Field(128, ge=1, description="completions decoded at once")
    require_stop: bool = Field(True, description="whether a completion that the limit cut is wrong whatever it says")
    sandbox: SandboxKind = Field("bubblewrap", description='where the code of completions runs; "none" is without protection, as you')


class PairSettings(Section):
    """Preferences from a file, `[pairs]`."""

    path: str = Field(description="a .jsonl, .json, .csv or .parquet file with the columns prompt, chosen and rejected")
    limit: int | None = Field(None, ge=1, description="only the first so many pairs")


class ReplaySettings(Section):
    """Earlier examples that are learned from again, `[replay]` (DeepSeekMath §4.1.4)."""

    files: list[str] = Field(min_length=1, description="files of labels, such as data/train.parquet of an earlier reward model")
    share: float = Field(0.1, gt=0.0, le=1.0, description="of all their completions, drawn by the seed; DeepSeekMath's is 0.1")


class RewardRecipe(Section):
    """All settings of a reward model's training."""

    reward_model: Literal["outcome", "process", "preference"] = Field(
        description="outcome: right or wrong completions; process: their steps; preference: pairs of which one was preferred"
    )
    model: str = Field(description="the policy that writes completions; its template and tokenizer are the reward model's")
    base: str | None = Field(None, description="what the reward model begins with: a language or reward model; left out, the policy")
    seed: int = Field(0, ge=0, description="of everything random")
    output: str | None = Field(None, description="the folder of data and model; left out, reward-models/NAME after the recipe's file")
    template: Template = Field(default_factory=Template)
    problems: RewardProblems | None = Field(None, description="for outcome and process, without labels of your own")
    samples: SampleSettings = Field(default_factory=SampleSettings)
    steps: StepSettings = Field(default_factory=StepSettings, description="for process: what a step is, and the rule that labels it")
    labels: str | None = Field(None, description="a Parquet file of completions that are labelled already, in place of problems")
    pairs: PairSettings | None = Field(None, description="for preference")
    replay: ReplaySettings | None = Field(None, description="earlier examples beside the new ones; not for preference")
    held_out_share: float = Field(0.2, gt=0.0, lt=1.0, description="of the problems, that the model is judged on and not fitted to")
    bins: int = Field(10, ge=2, description="of the reliability table")
    fit: FitSettings = Field(default_factory=FitSettings)

    @model_validator(mode="after")
    def _fits(self) -> RewardRecipe:
        given = [name for name in ("problems", "labels", "pairs") if getattr(self, name) is not None]
        wanted = ["pairs"] if self.reward_model == "preference" else ["problems", "labels"]
        if len(given) != 1 or given[0] not in wanted:
            raise ValueError(f"{' or '.join(wanted)}: expected for a reward model of kind {self.reward_model}, got {given or 'neither'}")
        if self.reward_model == "preference" and self.replay is not None:
            raise ValueError("replay: expected none for preference; put the pairs into one file")
        if self.reward_model == "process" and self.labels is None and self.steps.function == "model":
            raise ValueError("steps.function: 'model' would learn from itself; name a rule, such as equations, or a file of labels")
        return self

    @property
    def head(self) -> Kind:
        """The kind of head: a preference model gives one number a completion, like an outcome model."""
        return "process" if self.reward_model == "process" else "outcome"


def load_reward_recipe(path: str | Path, overrides: Iterable[str] = ()) -> RewardRecipe:
    """Read the settings and apply `section.field=value` overrides.

    Raises:
        RecipeError: no such file, not TOML, a recipe of another command, or not a valid one; every fault is named by its key.
    """
    table = settings_file.read(path, overrides)
    if "policy" in table:
        raise RecipeError(f"recipe {path}: it trains by rounds.", fix=f"Run `sharpen iterate {path}`.")
    if "reward_model" not in table and ("training" in table or "recipe" in table):
        what, command = ("compares methods", "compare-methods") if "recipe" in table else ("trains a policy", "train")
        raise RecipeError(f"recipe {path}: it {what}.", fix=f"Run `sharpen {command} {path}`.")
    fix = "docs/reward-models.md has every key."
    return settings_file.check(RewardRecipe, table, where=f"recipe {path}", fix=fix)
