"""The folder of something that the same command goes on with: claimed by its settings, and held by one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from sharpen import settings_file
from sharpen.errors import RecipeError, RunError
from sharpen.folders import alone
from sharpen.recipe import differences, to_table

RECIPE = "recipe.toml"
_FIX = "Choose another folder by output=..., or delete that one."


@contextmanager
def claimed(output: Path, recipe: BaseModel, what: str, *, free: Sequence[str] = ()) -> Iterator[None]:
    """Make the folder for these settings, or open the one that has them, and hold it for this process alone.

    Args:
        output: the folder; `recipe.toml` in it has the settings.
        recipe: the settings.
        what: lies there, for messages, as `a reward model`.
        free: keys that may differ from those it was begun with; they are written anew. One that ends with a point stands for its section.

    Raises:
        RecipeError: it holds something with other settings.
        RunError: it holds something else, another process works there, or it cannot be written.
    """
    path = output / RECIPE
    if path.is_file():
        _compare(output, recipe, what, free)
    elif output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RunError(f"output {output}: there is something already, and it is left as it is.", fix="Choose another folder by output=...")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(output, error) from error
    with alone(output, "works there", fix="Wait for it, or choose another folder by output=..."):
        try:
            _write(path, recipe)
        except OSError as error:
            raise _unwritable(output, error) from error
        yield


def _compare(output: Path, recipe: BaseModel, what: str, free: Sequence[str]) -> None:
    known = settings_file.check(type(recipe), settings_file.read(output / RECIPE), where=f"recipe {output / RECIPE}", fix=_FIX)
    changed = [
        key for key in differences(known, recipe) if not any(key == one or (one.endswith(".") and key.startswith(one)) for one in free)
    ]
    if changed:
        raise RecipeError(f"output {output}: it holds {what} with other settings, which is left as it is: {', '.join(changed)}.", fix=_FIX)


def _write(path: Path, recipe: BaseModel) -> None:
    import tomli_w

    temporary = path.with_suffix(".writing")
    temporary.write_text(tomli_w.dumps(to_table(recipe)), encoding="utf-8")
    os.replace(temporary, path)


def _unwritable(output: Path, error: OSError) -> RunError:
    return RunError(f"output {output}: cannot be written: {error}.", fix="Choose a folder that you may write, by output=...")
