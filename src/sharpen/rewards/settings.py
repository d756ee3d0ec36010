"""The rewards section of a recipe, and the functions that it names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sharpen import user_code
from sharpen.errors import RewardError, nearest
from sharpen.grading.confined import SandboxKind
from sharpen.rewards import learned_settings, steps
from sharpen.rewards.beside import ARGUMENTS
from sharpen.rewards.functions import BUILT_IN, COLUMNS, RewardFunction
from sharpen.rewards.gaming import RULE, GamingSettings
from sharpen.rewards.learned_settings import LEARNED, LearnedSettings, OutcomeSettings
from sharpen.rewards.splitters import Ends, Place, splitter


class RewardFunctionSettings(BaseModel):
    """One reward function of a recipe, `[[rewards.functions]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(
        description="accuracy, boxed, finished, format_think, language, overlong, repetition, model (a reward model), or your own as "
        "path/to/file.py:name relative to the recipe, or package.module:name"
    )
    weight: float = Field(1.0, allow_inf_nan=False, description="of its values in the sum; with 0 they are recorded and not counted")
    parameters: dict[str, Any] = Field(default_factory=dict, description="passed to the function by name")
    from_step: int = Field(1, ge=1, description="the first step whose rewards it counts in; before, its values are only recorded")
    until_step: int | None = Field(None, ge=1, description="the last such step; left out, it counts to the end")

    @field_validator("function")
    @classmethod
    def _known(cls, function: str) -> str:
        names = sorted([*BUILT_IN, LEARNED])
        if ":" not in function and function not in names:
            known = ", ".join(names)
            raise ValueError(
                f"unknown reward function '{function}'.{nearest(function, names)} Use {known}, or your own as "
                "path/to/file.py:name or package.module:name"
            )
        return function

    @model_validator(mode="after")
    def _in_order(self) -> RewardFunctionSettings:
        if self.function == LEARNED:
            learned_settings.check(OutcomeSettings, self.parameters)
        if self.until_step is not None and self.until_step < self.from_step:
            raise ValueError(
                f"until_step: expected at least from_step = {self.from_step}, got {self.until_step}; both steps themselves are counted"
            )
        return self

    def counts(self, step: int) -> bool:
        """Whether its values are counted in the rewards of this step, from 1."""
        return self.weight != 0 and self.from_step <= step and (self.until_step is None or step <= self.until_step)

    @property
    def name(self) -> str:
        """The name of its part: the built-in's, or the function's in its file."""
        return self.function.rpartition(":")[2]


class StepSettings(BaseModel):
    """What the steps of a completion are and what judges them, `[rewards.steps]`; used by methods with process supervision."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(
        "equations",
        description="equations (does each step's hold?), calculations (the same with parentheses, chains and rounding), model (a process "
        "reward model), or your own as path/to/file.py:name or package.module:name",
    )
    parameters: dict[str, Any] = Field(default_factory=dict, description="of model: path, batch_tokens, dtype, device, keep")
    splitter: str = Field(
        "lines",
        description="what a step is: lines, blank_lines (paragraphs), sentences, marked (from one `Step 1:`, `1.` or ки to the next)",
    )
    marker: str | None = Field(None, description="with marked, a regular expression in place of those marks; ^ is the beginning of a line")
    marker_place: Place = Field("begin", description="whether your marker begins a step or ends one (end)")

    @field_validator("function")
    @classmethod
    def _known(cls, function: str) -> str:
        names = sorted([*steps.BUILT_IN, LEARNED])
        if ":" not in function and function not in names:
            known = ", ".join(names)
            raise ValueError(
                f"unknown step function '{function}'.{nearest(function, names)} Use {known}, or your own as path/to/file.py:name"
            )
        return function

    @model_validator(mode="after")
    def _splits(self) -> StepSettings:
        if self.function == LEARNED:
            learned_settings.check(LearnedSettings, self.parameters)
        elif self.parameters:
            raise ValueError(f"function '{self.function}' takes no parameters, got {', '.join(self.parameters)}")
        try:
            _ = self.ends
        except RewardError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def ends(self) -> Ends:
        """The splitter."""
        return splitter(self.splitter, marker=self.marker, marker_place=self.marker_place)

    def load(self, base: Path | None = None) -> RewardFunction:
        """The callable; see `load_function`."""
        if self.function == LEARNED:
            from sharpen.rewards.learned import StepReward

            return StepReward(LearnedSettings.model_validate(self.parameters), base)
        return steps.BUILT_IN[self.function] if self.function in steps.BUILT_IN else from_file(self.function, base, "Step function")


class RewardSettings(BaseModel):
    """The rewards of a recipe: the reward of a completion is the weighted sum of its parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    functions: list[RewardFunctionSettings] = Field(min_length=1, description="the parts of the reward")
    steps: StepSettings = Field(default_factory=StepSettings)
    sandbox: SandboxKind = Field("bubblewrap", description='where the code of completions runs; "none" is without protection, as you')
    gaming: GamingSettings | None = Field(None, description="what is done where a learned reward is gamed; left out, nothing")
    fail_fast: bool = Field(False, description="stop, before any update, where a function raises or gives NaN, an infinity or None")

    @model_validator(mode="after")
    def _counts(self) -> RewardSettings:
        if not any(function.weight for function in self.functions):
            raise ValueError("every weight is 0, so there is no reward; give at least one function another weight")
        return self

    @model_validator(mode="after")
    def _can_be_watched(self) -> RewardSettings:
        if self.gaming is None:
            return self
        if not self.learned:
            raise ValueError("gaming: expected a function 'model' with a weight, and there is none to be gamed")
        if self.gaming.then == "rule" and RULE not in self.parts:
            raise ValueError(f"gaming.then: 'rule' needs the function '{RULE}' among rewards.functions; add it with weight 0")
        if self.gaming.then == "rule" and self.steps.function == LEARNED:
            raise ValueError("gaming.then: 'rule' expected no 'model' in rewards.steps, which would go on to judge steps; use stop or warn")
        return self

    @property
    def learned(self) -> list[str]:
        """The parts that are a reward model's, and that count at some step."""
        return [name for name, entry in self.parts.items() if entry.function == LEARNED and entry.weight]

    def learned_at(self, step: int) -> bool:
        """Whether a reward model's part counts in the reward of this step, from 1."""
        return any(entry.function == LEARNED and entry.counts(step) for entry in self.functions)

    @property
    def parts(self) -> Mapping[str, RewardFunctionSettings]:
        """The functions by the names of their parts, in order; a function named twice is `name` and `name_2`."""
        out: dict[str, RewardFunctionSettings] = {}
        for entry in self.functions:
            same = sum(other.name == entry.name for other in out.values())
            out[f"{entry.name}_{same + 1}" if same else entry.name] = entry
        return out

    def weights(self, step: int) -> dict[str, float]:
        """What the reward of this step, from 1, is the sum of: the weight of each part that counts."""
        return {name: entry.weight for name, entry in self.parts.items() if entry.counts(step)}

    def step_without(self, last: int) -> int | None:
        """The first of the steps 1 to `last` in whose reward nothing counts; None when there is none."""
        changes = {1, *(entry.until_step + 1 for entry in self.functions if entry.until_step is not None)}
        return next((step for step in sorted(changes) if step <= last and not self.weights(step)), None)


def load_function(settings: RewardFunctionSettings, base: Path | None = None) -> RewardFunction:
    """The callable that the settings name.

    Args:
        settings: one entry of the recipe; a parameter that the function does not take is refused.
        base: what a file's path is relative to (the recipe's folder); the working directory when None.

    Raises:
        RewardError: for a file or module that is missing or fails to run, or lacks the function, and for a parameter that it does not take.
    """
    if settings.function == LEARNED:
        from sharpen.rewards.learned import OutcomeReward

        return OutcomeReward(OutcomeSettings.model_validate(settings.parameters), base)
    function = BUILT_IN[settings.function] if settings.function in BUILT_IN else from_file(settings.function, base)
    _check_parameters(settings, function)
    return function


def from_file(address: str, base: Path | None, what: str = "Reward function") -> RewardFunction:
    """The function `name` of `path/to/file.py:name` or `package.module:name`."""
    file, _, name = address.rpartition(":")
    return user_code.load(file, name, base=base, what=f"{what} '{address}'", kind=RewardError)


def _check_parameters(settings: RewardFunctionSettings, function: RewardFunction) -> None:
    """Refuse a parameter that is a column's name, or that the function's signature has no place for."""
    for name in settings.parameters:
        if name in COLUMNS or name in ARGUMENTS:
            what = "a column" if name in COLUMNS else "an argument that sharpen gives"
            raise RewardError(f"Reward function '{settings.function}': '{name}' is {what} and cannot be a parameter.", fix="Rename it.")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    options = [parameter.name for parameter in parameters if parameter.name not in (*COLUMNS, *ARGUMENTS)]
    for name in settings.parameters:
        if name not in options:
            raise RewardError(
                f"Reward function '{settings.function}' has no parameter '{name}'.{nearest(name, options)}",
                fix=f"It takes: {', '.join(options)}." if options else "It takes none.",
            )
