"""Folders that results are written to: one process at a time, and what is said when a disk is full."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharpen.errors import RunError

LOCK = ".lock"
"""The file that is locked in such a folder. It stays, and says nothing: the lock is the operating system's, and ends with its process."""


@contextmanager
def alone(folder: Path, what: str, *, fix: str) -> Iterator[None]:
    """Hold a folder, so that no second process (nor thread) writes into it meanwhile.

    The lock is the operating system's (`flock`): it is gone when the process has ended, however it ended, and there is nothing to clean up.

    Args:
        folder: there is one of this name.
        what: is being done there, for the message of the one who comes second, as `evaluates into it`.
        fix: what that one is to do.

    Raises:
        RunError: another process holds the folder, or it cannot be written.
    """
    from filelock import FileLock, Timeout

    path = folder / LOCK
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(f"output {folder}: another process{_holder(path)} {what}.", fix=fix) from None
    except OSError as error:
        raise RunError(f"output {folder}: cannot be locked: {_reason(error)}.", fix="Choose a folder that you may write.") from error
    try:
        _note(path, f"{os.getpid()} on {platform.node()}")
        yield
    finally:
        _note(path, "")
        lock.release()


@contextmanager
def saving(what: str, path: Path, *, kept: str, fix: str, partial: Path | None = None) -> Iterator[None]:
    """Tell of a file that could not be written, and take away what there is of it.

    Args:
        what: the file holds, as `graded completions`.
        path: of the file.
        kept: what is not lost, as a sentence.
        fix: what to do.
        partial: what it is called until it is whole; None: as `path`, with the suffix `.writing`.

    Raises:
        RunError: the disk is full, or something else that the operating system refused.
    """
    try:
        yield
    except OSError as error:
        (partial or path.with_suffix(".writing")).unlink(missing_ok=True)
        raise RunError(f"{path}: {what} cannot be written: {_reason(error)}. {kept}", fix=fix) from error


def _note(path: Path, holder: str) -> None:
    """Write down who holds a folder. It is only for a message, so a disk without room for it stops nobody."""
    with contextlib.suppress(OSError):
        path.write_text(holder, encoding="utf-8")


def _holder(path: Path) -> str:
    """` (1234 on HOST)`, or nothing where the holder has not written it down."""
    try:
        found = path.read_text(encoding="utf-8")
    except OSError:
        return ""
    return f" ({found})" if found else ""


def _reason(error: OSError) -> str:
    """The reason in the system's own words, `No space left on device`, without what a library puts around them."""
    return os.strerror(error.errno) if error.errno else str(error)
