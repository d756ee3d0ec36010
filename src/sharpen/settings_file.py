"""Settings in a TOML file: read, overridden from the command line, checked against a typed model.

An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from sharpen.errors import RecipeError, nearest

Model = TypeVar("Model", bound=BaseModel)


def read(path: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The table of a TOML file with `section.field=value` overrides; RecipeError where it cannot be read."""
    path = Path(path)
    if not path.is_file():
        raise RecipeError(f"recipe {path}: no such file.", fix="Run `sharpen recipes` to see those that come with sharpen.")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe {path}: not valid TOML: {error}.", fix="Mend the line that the message names.") from error
    for override in overrides:
        _override(table, override)
    return table


def check(model: type[Model], table: Mapping[str, Any], *, where: str, fix: str) -> Model:
    """The settings of a table; RecipeError names every fault by its key.

    Args:
        model: the settings' type.
        table: as TOML gives it.
        where: what the table is, for the message.
        fix: what to do about a fault.
    """
    try:
        return model.model_validate(table)
    except ValidationError as error:
        faults = [_fault(model, detail) for detail in error.errors()]
        raise RecipeError(f"{where}: " + "; ".join(faults), fix=fix) from error


def _override(table: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise RecipeError(f"override '{override}': expected section.field=value.", fix="For example: training.steps=100")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, field = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise RecipeError(f"override '{override}': '{section}' is a value, not a section.", fix="Name a section's field.")
    table[field] = value


def _fault(root: type[BaseModel], detail: Any) -> str:
    path = [str(part) for part in detail["loc"]]
    key = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return f"unknown key '{key}'.{nearest(path[-1], _known_keys(root, path[:-1]))}"
    if detail["type"] == "missing":
        return f"missing key '{key}'"
    message = detail["msg"].removeprefix("Value error, ")
    given = "" if detail["type"] == "value_error" or isinstance(detail["input"], dict) else f", got {detail['input']!r}"
    return f"{key}: {message}{given}" if key else f"{message}"


def _known_keys(root: type[BaseModel], path: list[str]) -> list[str]:
    """The keys that a section may have; discriminated unions add their tag to the path, and are looked into all the same."""
    models: list[Any] = [root]
    for part in path:
        found = [argument for model in models if part in model.model_fields for argument in _models(model.model_fields[part].annotation)]
        models = found or models
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
