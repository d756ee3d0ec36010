"""The settings of a run: read from TOML, overridden from the command line, checked, written back as resolved.

A recipe is complete and runnable. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sharpen import settings_file, user_code
from sharpen.errors import RecipeError, nearest
from sharpen.methods import METHODS, Method
from sharpen.models.lora_settings import LoraSettings
from sharpen.ops.kl import Estimator
from sharpen.ops.reduce import Reduction
from sharpen.problems.source import Source
from sharpen.problems.templates import Template
from sharpen.rewards.settings import RewardSettings


class Section(BaseModel):
    """A table of a recipe: its keys are fixed, its values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DifficultySettings(Section):
    """Which training problems are kept, by their pass rate under the policy before training."""

    samples: int = Field(8, ge=2, description="completions of each problem that estimate its pass rate")
    above: float = Field(0.0, ge=0.0, le=1.0, description="keep problems whose pass rate is above this; 0 drops the never right")
    below: float = Field(1.0, ge=0.0, le=1.0, description="keep problems whose pass rate is below this; 1 drops the always right")


class ProblemSettings(Section):
    """Where problems come from."""

    train: Source = Field(description="what training samples from")
    held_out: Source | None = Field(None, description="what is evaluated before and after, and never trained on")
    difficulty: DifficultySettings | None = Field(None, description="selection of training problems by pass rate; left out, all are kept")


class RolloutSettings(Section):
    """How the old policy is sampled."""

    problems: int = Field(8, ge=1, description="problems a step (P)")
    group_size: int = Field(8, ge=1, description="completions of each problem (G)")
    max_new_tokens: int | list[tuple[int, int]] = Field(
        256, description="limit of a completion in tokens, or a schedule of [first step, limit] pairs, the first step being 1"
    )
    temperature: float = Field(1.0, description="of sampling, and of the trainer's log-probabilities; > 0")
    top_p: float = Field(1.0, description="1 only: the trainer's log-probabilities are of the whole distribution")
    max_rows: int = Field(128, ge=1, description="completions decoded at once")
    refills: int = Field(
        0, ge=0, description="times that groups of zero variance are replaced by groups of other problems (dynamic sampling)"
    )

    @field_validator("max_new_tokens")
    @classmethod
    def _schedule(cls, value: int | list[tuple[int, int]]) -> int | list[tuple[int, int]]:
        pairs = [(1, value)] if isinstance(value, int) else value
        starts = [start for start, _ in pairs]
        if not pairs or starts[0] != 1 or starts != sorted(set(starts)) or any(limit < 1 for _, limit in pairs):
            raise ValueError("expected a limit of at least 1, or [first step, limit] pairs that begin with step 1 and rise")
        return value

    @field_validator("temperature")
    @classmethod
    def _temperature(cls, value: float) -> float:
        if value <= 0:
            raise ValueError(f"training samples at a temperature above 0, got {value}: at 0 all completions of a group are the same")
        return value

    @field_validator("top_p")
    @classmethod
    def _top_p(cls, value: float) -> float:
        if value != 1:
            raise ValueError(f"training samples from the whole distribution (top_p = 1), got {value}: the ratio would be of another policy")
        return value

    def limit(self, step: int) -> int:
        """The limit of a completion at this step, counted from 1."""
        if isinstance(self.max_new_tokens, int):
            return self.max_new_tokens
        return next(limit for start, limit in reversed(self.max_new_tokens) if step >= start)

    @property
    def longest(self) -> int:
        """The largest limit of any step."""
        return self.max_new_tokens if isinstance(self.max_new_tokens, int) else max(limit for _, limit in self.max_new_tokens)


class MethodSettings(Section):
    """The method, by name, and what departs from its own values."""

    name: str = Field("grpo", description="one of `sharpen methods`, or one that `file` defines")
    file: str | None = Field(None, description="a Python file that defines methods of your own, relative to the recipe")
    kl_coef: float | None = Field(None, ge=0.0, description="β of the KL term; 0 keeps no reference")
    kl_estimator: Estimator | None = Field(None, description="of the KL term")
    clip_low: float | None = Field(None, ge=0.0, description="ε below 1")
    clip_high: float | None = Field(None, ge=0.0, description="ε above 1")
    truncation: float | None = Field(None, ge=1.0, description="cap of the importance weight between the trainer and the rollout engine")
    beta: float | None = Field(None, gt=0.0, description="β of pairwise losses (DPO)")
    ddof: Literal[0, 1] | None = Field(None, description="of the deviation that rewards are divided by")
    eps: float | None = Field(None, ge=0.0, description="added to that deviation")
    accept: float | None = Field(None, description="the reward from which rejection sampling accepts a completion")
    gamma: float | None = Field(None, gt=0.0, le=1.0, description="γ of GAE")
    gae_lambda: float | None = Field(None, ge=0.0, le=1.0, description="λ of GAE")
    whiten: bool | None = Field(None, description="whether GAE's advantages are normalised over the batch")
    value_clip: float | None = Field(None, gt=0.0, description="how far a value may move in one rollout, in the unit of rewards")
    reduction: Reduction | None = Field(None, description="how per-token losses become one number")

    @model_validator(mode="after")
    def _known(self) -> MethodSettings:
        if self.file is None and self.name not in METHODS:
            raise ValueError(f"name: expected one of {', '.join(METHODS)}, got '{self.name}'.{nearest(self.name, METHODS)}")
        return self

    def build(self, base: Path | None = None) -> Method:
        """The method with these departures; one that it has no use for is left out (see `unused_settings`).

        Args:
            base: the recipe's folder, which `file` is relative to.

        Raises:
            RecipeError: `file` does not define the method.
        """
        method = METHODS[self.name] if self.file is None else method_from_file(self.file, self.name, base)
        used = used_settings(method)
        for part, names in DEPARTURES.items():
            old = getattr(method, part) if part else method
            given = {field: value for name, field in names.items() if name in used and (value := getattr(self, name)) is not None}
            if given and old is not None:
                changed: Any = dataclasses.replace(old, **given)
                whole: dict[str, Any] = {part: changed}
                method = dataclasses.replace(method, **whole) if part else changed
        return method


DEPARTURES: Mapping[str, Mapping[str, str]] = {
    "kl": {"kl_coef": "coef", "kl_estimator": "estimator"},
    "surrogate": {"clip_low": "clip_low", "clip_high": "clip_high", "truncation": "truncation", "beta": "beta"},
    "advantage": {
        "ddof": "ddof", "eps": "eps", "accept": "threshold", "gamma": "gamma", "gae_lambda": "gae_lambda", "whiten": "whiten",
    },
    "value": {"value_clip": "clip"},
    "": {"reduction": "reduction"},
}  # fmt: skip
"""The part of a method that each setting goes to, and its name there."""


def unused_settings(settings: MethodSettings, method: Method) -> list[str]:
    """The settings that are given and that the method makes no use of."""
    given = {name for name in MethodSettings.model_fields if name not in ("name", "file") and getattr(settings, name) is not None}
    return sorted(given - set(used_settings(method)))


def used_settings(method: Method) -> list[str]:
    """The settings that change something in the method."""
    kind, surrogate = method.advantage.kind, method.surrogate.kind
    clips = surrogate in ("clipped_token", "clipped_sequence", "clipped_weight")
    deviates = kind in ("group_norm", "batch_norm", "process", "gae")  # gae: when whitened
    uses = {
        "kl_coef": method.kl.placement != "none",
        "kl_estimator": method.kl.placement != "none",
        "clip_low": clips,
        "clip_high": clips,
        "truncation": surrogate != "pairwise" and method.data_source == "current_policy",
        "beta": surrogate == "pairwise",
        "ddof": deviates,
        "eps": deviates,
        "accept": kind == "accept",
        "gamma": kind == "gae",
        "gae_lambda": kind == "gae",
        "whiten": kind == "gae",
        "value_clip": method.value is not None,
        "reduction": surrogate != "pairwise",
    }
    return [name for name, used in uses.items() if used]


def setting_of(method: Method, name: str) -> Any:
    """The value that a setting has in the method."""
    for part, names in DEPARTURES.items():
        if name in names:
            return getattr(getattr(method, part) if part else method, names[name])
    raise KeyError(name)


def method_from_file(file: str, name: str, base: Path | None) -> Method:
    """The method of that name that a user's Python file defines, anywhere at its top level."""
    what = f"method.file '{file}'"
    module = user_code.run(file, base=base, what=what, kind=RecipeError)
    found = {value.name: value for value in vars(module).values() if isinstance(value, Method) and METHODS.get(value.name) is not value}
    if name not in found:
        known = (
            f"It has: {', '.join(sorted(found))}." if found else "Write, for example: MINE = dataclasses.replace(GRPO, name='mine', ...)"
        )
        raise RecipeError(f"{what}: there is no method '{name}' in it.{nearest(name, found)}", fix=known)
    return found[name]


class TrainingSettings(Section):
    """The loop: a step is one rollout and the updates it feeds, num_iterations × minibatches of them."""

    steps: int = Field(ge=1, description="rollouts")
    num_iterations: int = Field(1, ge=1, description="passes over each rollout (the paper's μ)")
    minibatches: int = Field(1, ge=1, description="updates of a pass; R1-Zero: 16")
    optimiser: Literal["adamw", "adafactor"] = Field(
        "adamw", description="adafactor: next to no state, and a rate relative to each parameter's size"
    )
    learning_rate: float = Field(1e-6, gt=0.0, description="the peak")
    warmup: int = Field(0, ge=0, description="updates of linear warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="after the warm-up")
    betas: tuple[float, float] = Field((0.9, 0.999), description="of AdamW")
    weight_decay: float = Field(0.0, ge=0.0, description="of AdamW")
    max_grad_norm: float = Field(1.0, gt=0.0, description="gradients of a larger norm are scaled down to it")
    value_learning_rate: float = Field(1e-5, gt=0.0, description="of the value model, where the method has one; constant")
    value_warmup: int = Field(0, ge=0, description="steps in which the value model alone is trained")
    reference_sync: int = Field(0, ge=0, description="every so many steps the reference becomes the policy; 0: never")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="of the weights; bfloat16 keeps a float32 master copy")
    device: str = Field("auto", description="auto, cpu, cuda")
    gradient_checkpointing: bool = Field(False, description="keep little of a forward pass and compute it again: slower, in less memory")
    token_budget: int | Literal["auto"] = Field("auto", description="token positions of one micro-batch; auto: by the memory there is")
    threads: int | Literal["auto"] = Field("auto", description="of the CPU; auto: as torch finds them")

    @model_validator(mode="after")
    def _betas_have_a_use(self) -> TrainingSettings:
        if self.optimiser == "adafactor" and self.betas != type(self).model_fields["betas"].default:
            raise ValueError("betas: expected none with optimiser = 'adafactor', which has no such moments; leave them out")
        return self


class CheckpointSettings(Section):
    """When a run is saved; its last step always is."""

    every: int = Field(50, ge=1, description="steps")
    keep: int = Field(2, ge=1, description="the newest so many are kept")


class EvaluationSettings(Section):
    """How held-out problems are measured, before and after."""

    samples: int = Field(16, ge=1, description="completions of each problem")
    every: int = Field(0, ge=0, description="steps between evaluations on the way; 0: before and after only")
    ks: list[int] = Field([1, 4, 16], description="the K of Pass@K and Maj@K")
    max_new_tokens: int | None = Field(None, ge=1, description="limit of a completion; left out, the rollout's largest")
    temperature: float = Field(1.0, ge=0.0, description="of sampling")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="nucleus share")
    require_stop: bool = Field(True, description="whether a completion that the limit cut counts as without an answer")

    @model_validator(mode="after")
    def _ks(self) -> EvaluationSettings:
        if not self.ks or any(k < 1 or k > self.samples for k in self.ks):
            raise ValueError(f"ks: expected numbers from 1 to samples = {self.samples}, got {self.ks}: Pass@K needs at least K samples")
        return self


class TrackingSettings(Section):
    """Where metrics go beside the run's own event log."""

    trackers: list[str] = Field([], description="tensorboard, trackio, or the name of an entry point in the group sharpen.trackers")


class Recipe(Section):
    """All settings of a run."""

    model: str = Field(description='"embedded", "tiny", a local folder, or a hub id')
    seed: int = Field(0, ge=0, description="of everything random")
    output: str | None = Field(None, description="the run's folder; left out, runs/NAME after the recipe's file")
    template: Template = Field(default_factory=Template)
    problems: ProblemSettings
    rollout: RolloutSettings = Field(default_factory=RolloutSettings)
    rewards: RewardSettings
    method: MethodSettings = Field(default_factory=MethodSettings)
    training: TrainingSettings
    lora: LoraSettings | None = Field(None, description="adapters are trained and the model is frozen; left out, all weights are trained")
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    tracking: TrackingSettings = Field(default_factory=TrackingSettings)

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        compares = self.method.file is None and METHODS[self.method.name].needs_group
        if self.rollout.group_size < 2 and compares:
            raise ValueError(
                f"rollout.group_size: {self.method.name} needs groups of at least 2 completions (G), got {self.rollout.group_size}: "
                "one has no baseline"
            )
        if self.training.minibatches > self.rollout.problems:
            raise ValueError(
                f"training.minibatches: expected at most rollout.problems = {self.rollout.problems}, got {self.training.minibatches}: "
                "a minibatch holds whole groups"
            )
        if (step := self.rewards.step_without(self.training.steps)) is not None:
            raise ValueError(
                f"rewards.functions: nothing counts in the reward of step {step}; give a function with a weight other than 0 a "
                f"from_step of at most {step} and an until_step of at least {step}"
            )
        if self.lora is not None and self.training.reference_sync:
            raise ValueError(
                f"training.reference_sync: 0 only with [lora], got {self.training.reference_sync}: the reference is the model without its "
                "adapter, which never changes"
            )
        return self


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe and apply `section.field=value` overrides.

    Args:
        path: a TOML file.
        overrides: values are read as TOML, and as plain text where they are not TOML (`model=embedded`).

    Raises:
        RecipeError: no such file, not TOML, or not a valid recipe; every fault is named by its key.
    """
    table = settings_file.read(path, overrides)
    for key, command in OTHER_RECIPES.items():
        if key in table:
            raise RecipeError(f"recipe {path}: {command[1]}.", fix=f"Run `sharpen {command[0]} {path}`.")
    return validate(table, where=f"recipe {path}")


OTHER_RECIPES = {
    "policy": ("iterate", "it trains by rounds"),
    "recipe": ("compare-methods", "it compares methods of another recipe"),
    "reward_model": ("train-reward-model", "it trains a reward model"),
}
"""By a key that a recipe of another command has: the command, and what it does."""


def validate(table: Mapping[str, Any], *, where: str) -> Recipe:
    """Check a table of settings; RecipeError names every fault by its key."""
    return settings_file.check(Recipe, table, where=where, fix="Run `sharpen recipes --keys` to see every key.")


def to_table(recipe: BaseModel) -> dict[str, Any]:
    """The recipe as a table that TOML can hold: settings that are None are left out."""
    return recipe.model_dump(mode="json", exclude_none=True)


def differences(old: BaseModel, new: BaseModel) -> list[str]:
    """The keys, as `section.field`, in which two recipes differ."""

    def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in table.items():
            out.update(flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
        return out

    a, b = flat(to_table(old)), flat(to_table(new))
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
