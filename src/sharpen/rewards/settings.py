"""The rewards section of a recipe, and the functions that it names."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sharpen import user_code
from sharpen.errors import RewardError, nearest
from sharpen.grading.confined import SandboxKind
from sharpen.rewards import steps
from sharpen.rewards.functions import BUILT_IN, COLUMNS, RewardFunction


class RewardFunctionSettings(BaseModel):
    """One reward function of a recipe, `[[rewards.functions]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(
        description="accuracy, boxed, finished, format_think, overlong, or your own as path/to/file.py:name relative to the recipe"
    )
    weight: float = Field(1.0, allow_inf_nan=False, description="of its values in the sum; with 0 they are recorded and not counted")
    parameters: dict[str, Any] = Field(default_factory=dict, description="passed to the function by name")

    @field_validator("function")
    @classmethod
    def _known(cls, function: str) -> str:
        if ":" not in function and function not in BUILT_IN:
            known = ", ".join(sorted(BUILT_IN))
            raise ValueError(
                f"unknown reward function '{function}'.{nearest(function, BUILT_IN)} Use {known}, or your own as path/to/file.py:name"
            )
        return function

    @property
    def name(self) -> str:
        """The name of its part: the built-in's, or the function's in its file."""
        return self.function.rpartition(":")[2]


class StepSettings(BaseModel):
    """What judges the steps of a completion, `[rewards.steps]`; used by methods with process supervision."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field("equations", description="equations (does each line's hold?), or your own as path/to/file.py:name")

    @field_validator("function")
    @classmethod
    def _known(cls, function: str) -> str:
        if ":" not in function and function not in steps.BUILT_IN:
            known = ", ".join(sorted(steps.BUILT_IN))
            raise ValueError(f"unknown step function '{function}'.{nearest(function, steps.BUILT_IN)} Use {known}, or path/to/file.py:name")
        return function

    def load(self, base: Path | None = None) -> RewardFunction:
        """The callable; see `load_function`."""
        return steps.BUILT_IN[self.function] if self.function in steps.BUILT_IN else from_file(self.function, base, "Step function")


class RewardSettings(BaseModel):
    """The rewards of a recipe: the reward of a completion is the weighted sum of its parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    functions: list[RewardFunctionSettings] = Field(min_length=1, description="the parts of the reward")
    steps: StepSettings = Field(default_factory=StepSettings)
    sandbox: SandboxKind = Field("bubblewrap", description='where the code of completions runs; "none" is without protection, as you')
    fail_fast: bool = Field(False, description="stop, before any update, where a function raises or gives NaN, an infinity or None")

    @model_validator(mode="after")
    def _counts(self) -> RewardSettings:
        if not any(function.weight for function in self.functions):
            raise ValueError("every weight is 0, so there is no reward; give at least one function another weight")
        return self


def load_function(settings: RewardFunctionSettings, base: Path | None = None) -> RewardFunction:
    """The callable that the settings name.

    Args:
        settings: one entry of the recipe; a parameter that the function does not take is refused.
        base: what a file's path is relative to (the recipe's folder); the working directory when None.

    Raises:
        RewardError: for a file that is missing or fails to run, or lacks the function, and for a parameter that it does not take.
    """
    function = BUILT_IN[settings.function] if settings.function in BUILT_IN else from_file(settings.function, base)
    _check_parameters(settings, function)
    return function


def from_file(address: str, base: Path | None, what: str = "Reward function") -> RewardFunction:
    """The function `name` of `path/to/file.py:name`."""
    file, _, name = address.rpartition(":")
    return user_code.load(file, name, base=base, what=f"{what} '{address}'", kind=RewardError)


def _check_parameters(settings: RewardFunctionSettings, function: RewardFunction) -> None:
    """Refuse a parameter that is a column's name, or that the function's signature has no place for."""
    for name in settings.parameters:
        if name in COLUMNS:
            raise RewardError(f"Reward function '{settings.function}': '{name}' is a column and cannot be a parameter.", fix="Rename it.")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    options = [parameter.name for parameter in parameters if parameter.name not in COLUMNS]
    for name in settings.parameters:
        if name not in options:
            raise RewardError(
                f"Reward function '{settings.function}' has no parameter '{name}'.{nearest(name, options)}",
                fix=f"It takes: {', '.join(options)}." if options else "It takes none.",
            )
