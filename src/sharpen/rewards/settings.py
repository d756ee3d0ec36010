"""The rewards section of a recipe, and the functions that it names."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sharpen.errors import RewardError, nearest
from sharpen.rewards.functions import BUILT_IN, COLUMNS, RewardFunction
from sharpen.streams import derive


class RewardFunctionSettings(BaseModel):
    """One reward function of a recipe, `[[rewards.functions]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(description="accuracy, boxed, finished, format_think, or your own as path/to/file.py:name relative to the recipe")
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


class RewardSettings(BaseModel):
    """The rewards of a recipe: the reward of a completion is the weighted sum of its parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    functions: list[RewardFunctionSettings] = Field(min_length=1, description="the parts of the reward")
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
    function = BUILT_IN[settings.function] if settings.function in BUILT_IN else _from_file(settings.function, base)
    _check_parameters(settings, function)
    return function


def _from_file(address: str, base: Path | None) -> RewardFunction:
    file, _, name = address.rpartition(":")
    path = ((base or Path.cwd()) / file).resolve()
    if not path.is_file():
        raise RewardError(f"Reward function '{address}': there is no file {path}.", fix="Give the path relative to the recipe's folder.")
    module = _run(path, address)
    function: Any = vars(module).get(name)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        what = f"Reward function '{address}': {path} has no '{name}'.{nearest(name, known)}"
        raise RewardError(what, fix=f"It has: {', '.join(known) or 'none'}.")
    if not callable(function):
        raise RewardError(f"Reward function '{address}': '{name}' in {path} is a {type(function).__name__}, expected a function.")
    loaded: RewardFunction = function
    return loaded


def _run(path: Path, address: str) -> Any:
    """Import the file under a name of its own, so that it shadows nothing."""
    name = f"_sharpen_rewards_{derive(0, str(path)):016x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RewardError(f"Reward function '{address}': {path} is not a Python file.", fix="Name a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        last = traceback.format_exc(limit=-1).strip()
        raise RewardError(f"Reward function '{address}': {path} fails to import.\n{last}", fix="Make `python` run that file.") from error
    return module


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
