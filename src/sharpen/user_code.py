"""Functions and values of a user's own, from a Python file or an installed module, named in a recipe."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from sharpen.errors import SharpenError, nearest
from sharpen.streams import derive

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def load(file: str, name: str, *, base: Path | None, what: str, kind: type[SharpenError]) -> Any:
    """The callable `name` of a Python file, or of a module.

    Args:
        file: relative to `base`; or an import path such as `package.module`, where there is no file of that name.
        name: of the function.
        base: the recipe's folder; the working directory when None.
        what: begins every message, such as `Reward function 'mine.py:brevity'`.
        kind: of the error.

    Raises:
        SharpenError: of this kind, for a file or module that is missing or fails to run, or lacks the function.
    """
    module = imported(file, what=what, kind=kind) if is_module(file, base) else run(file, base=base, what=what, kind=kind)
    value = getattr(module, name, None)
    if value is None:
        known = [key for key, member in vars(module).items() if callable(member) and not key.startswith("_")]
        raise kind(f"{what}: {module.__file__} has no '{name}'.{nearest(name, known)}", fix=f"It has: {', '.join(known) or 'none'}.")
    if not callable(value):
        raise kind(f"{what}: '{name}' in {module.__file__} is a {type(value).__name__}, expected a function.", fix="Name a function.")
    return value


def is_module(address: str, base: Path | None) -> bool:
    """Whether an address such as `package.module` names a module: it ends in no `.py`, and there is no file of that name."""
    return bool(_MODULE.fullmatch(address)) and not address.endswith(".py") and not ((base or Path.cwd()) / address).exists()


def imported(module: str, *, what: str, kind: type[SharpenError]) -> Any:
    """The module of this import path; arguments as for `load`."""
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise kind(
                f"{what}: there is no module '{error.name}', and no file {module}.",
                fix="Install its package beside sharpen, or name a file, as path/to/file.py:name.",
            ) from error
        last = traceback.format_exc(limit=-1).strip()
        raise kind(f"{what}: module {module} fails to import.\n{last}", fix=f"Make `python -c 'import {module}'` work.") from error


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
