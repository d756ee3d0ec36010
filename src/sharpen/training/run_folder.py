"""A run's folder: what lies where, how a new one is made, and how an old one is opened again.

recipe.toml        the settings as resolved
events.jsonl       what happened, byte for byte the same for equal runs
timings.jsonl      how long it took
environment.json   on what machine and with which versions, one entry a start
completions/       step-000001.parquet, ...
checkpoints/       step-000050/, ...
evaluation/        before and after on the held-out problems
model/             the trained model, a normal Hugging Face folder
adapter/           with LoRA: the adapter alone, as peft and vLLM load it on top of the base model
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpen.errors import RecipeError, RunError
from sharpen.folders import alone
from sharpen.recipe import Recipe, differences, load_recipe, to_table

# What may change between a run and its continuation.
FREE_ON_RESUME = ("output", "training.steps", "checkpoint.", "tracking.")


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The settings as resolved."""
        return self.path / "recipe.toml"

    @property
    def events(self) -> Path:
        """The event log."""
        return self.path / "events.jsonl"

    @property
    def timings(self) -> Path:
        """The timings, apart from the events."""
        return self.path / "timings.jsonl"

    @property
    def environment(self) -> Path:
        """The machine and the versions, apart from the events."""
        return self.path / "environment.json"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints."""
        return self.path / "checkpoints"

    @property
    def completions(self) -> Path:
        """The completions of each step."""
        return self.path / "completions"

    @property
    def evaluation(self) -> Path:
        """The evaluations of the held-out problems."""
        return self.path / "evaluation"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model"

    @property
    def adapter(self) -> Path:
        """What was trained of it with LoRA."""
        return self.path / "adapter"

    def write_json(self, path: Path, value: Any) -> None:
        """Write a JSON file with sorted keys, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".writing")
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    def export(self, checkpoint: Path) -> None:
        """Put the model of a checkpoint into `model/`, and an adapter into `adapter/`."""
        _mirror(checkpoint, self.model)
        if (checkpoint / "adapter").is_dir():
            _mirror(checkpoint / "adapter", self.adapter)


def choose(recipe: Recipe, recipe_path: Path, *, resume: bool) -> Path:
    """The folder of a run: the recipe's `output`, else `runs/NAME`, and `runs/NAME-2`, ... while those are taken.

    With `resume`, the newest of these that there is.
    """
    if recipe.output is not None:
        return Path(recipe.output)
    base = Path("runs") / recipe_path.stem
    number, path = 1, base
    while path.exists():
        number += 1
        newest, path = path, base.with_name(f"{base.name}-{number}")
    return newest if resume and number > 1 else path


@contextmanager
def opened(path: Path, recipe: Recipe, *, resume: bool) -> Iterator[RunFolder]:
    """The folder of a new run, or with `resume` of an earlier one, held for this process alone; errors as in `create` and `reopen`.

    Raises:
        RunError: another process trains there.
    """
    begun = resume and RunFolder(path).recipe.is_file()
    folder = RunFolder(path) if begun else reopen(path, recipe) if resume else create(path, recipe)
    with alone(path, "trains there", fix="Wait for it, or choose another folder by output=..."):
        yield reopen(path, recipe) if begun else folder


def create(path: Path, recipe: Recipe) -> RunFolder:
    """Make the folder of a new run; RunError where it is taken or cannot be written."""
    folder = RunFolder(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunError(
            f"output {path}: there is something already, and it is left as it is.",
            fix="Go on with that run by --resume, or choose another folder by output=...",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_recipe(folder, recipe)
    except OSError as error:
        raise RunError(f"output {path}: cannot be written: {error}.", fix="Choose a folder that you may write, by output=...") from error
    return folder


def reopen(path: Path, recipe: Recipe) -> RunFolder:
    """Open the folder of an earlier run; RecipeError where the settings are not those it began with.

    The number of steps, checkpoints and trackers may change.
    """
    folder = RunFolder(path)
    if not folder.recipe.is_file():
        raise RunError(f"output {path}: there is no run to resume (no recipe.toml).", fix="Leave out --resume, or give output=...")
    changed = [key for key in differences(load_recipe(folder.recipe), recipe) if not key.startswith(FREE_ON_RESUME)]
    if changed:
        raise RecipeError(
            f"resume {path}: the settings differ from those the run began with: {', '.join(changed)}.",
            fix="Give the same settings, or begin a new run without --resume.",
        )
    try:
        write_recipe(folder, recipe)
    except OSError as error:
        raise RunError(f"output {path}: cannot be written: {error}.", fix="Mend its permissions.") from error
    return folder


def write_recipe(folder: RunFolder, recipe: Recipe) -> None:
    """Write the settings as TOML."""
    import tomli_w

    temporary = folder.recipe.with_suffix(".writing")
    temporary.write_text(tomli_w.dumps(to_table(recipe)), encoding="utf-8")
    os.replace(temporary, folder.recipe)


def _mirror(source: Path, target: Path) -> None:
    """Make `target` hold the files of `source`, linked where the disk can, so that they are kept once."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name != "manifest.json":
            try:
                os.link(file, target / file.name)
            except OSError:
                shutil.copy2(file, target / file.name)
