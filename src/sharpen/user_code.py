"""Functions and values from a user's own Python file, named in a recipe."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from sharpen.errors import SharpenError, nearest
from sharpen.streams import derive


def load(file: str, name: str, *, base: Path | None, what: str, kind: type[SharpenError]) -> Any:
    """The callable `name` of a Python file.

    Args:
        file: relative to `base`.
        name: of the function.
        base: the recipe's folder; the working directory when None.
        what: begins every message, such as `Reward function 'mine.py:brevity'`.
        kind: of the error.

    Raises:
        SharpenError: of this kind, for a file that is missing or fails to run, or lacks the function.
    """
    module = run(file, base=base, what=what, kind=kind)
    value = vars(module).get(name)
    if value is None:
        known = [key for key, member in vars(module).items() if callable(member) and not key.startswith("_")]
        raise kind(f"{what}: {module.__file__} has no '{name}'.{nearest(name, known)}", fix=f"It has: {', '.join(known) or 'none'}.")
    if not callable(value):
        raise kind(f"{what}: '{name}' in {module.__file__} is a {type(value).__name__}, expected a function.", fix="Name a function.")
    return value


def run(file: str, *, base: Path | None, what: str, kind: type[SharpenError]) -> Any:
    """Import a file under a name of its own, so that it shadows nothing; arguments as for `load`."""
    path = ((base or Path.cwd()) / file).resolve()
    if not path.is_file():
        raise kind(f"{what}: there is no file {path}.", fix="Give the path relative to the recipe's folder.")
    name = f"_sharpen_user_{derive(0, str(path)):016x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise kind(f"{what}: {path} is not a Python file.", fix="Name a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        last = traceback.format_exc(limit=-1).strip()
        raise kind(f"{what}: {path} fails to import.\n{last}", fix="Make `python` run that file.") from error
    return module
