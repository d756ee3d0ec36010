"""The user's cache of models: folders that are whole whenever they are there, however many processes want them at once."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sharpen.models.manifest import sync, sync_folder, verify_manifest, write_manifest

logger = logging.getLogger(__name__)


def models_cache() -> Path:
    """Where models that were converted or made here are kept: `models` below SHARPEN_CACHE, or below the user's cache folder."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("SHARPEN_CACHE") or user_cache_dir("sharpen")).expanduser() / "models"


def build_once(folder: Path, build: Callable[[Path], None], *, name: str, again: str, force: bool = False) -> bool:
    """Build a folder that another process may be building as well: the first holds a lock, and the others wait and take its folder.

    It is built beside `folder` and renamed, so that `folder` is whole whenever it is there.

    Args:
        folder: where it is to lie.
        build: writes it into the folder that it is given, which does not exist.
        name: what it is, for the message about a damaged one, as `converted embedded model`.
        again: what is done then, as `converting it again`.
        force: build it even if there is a whole one.

    Returns:
        Whether this call built it.
    """
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir() and not force:
            faults = verify_manifest(folder)
            if not faults:
                return False  # another process was first
            logger.warning("The %s in %s is damaged (%s): %s.", name, folder, "; ".join(faults), again)
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)  # of a build that was killed
        build(partial)
        write_manifest(partial)
        sync_folder(partial)
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
        sync(folder.parent)
    return True
