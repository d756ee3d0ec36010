"""A control group for one run: a bound on the number of processes, and on the memory of all of them together.

Version 1 and version 2 of the interface, where this user may make groups; root mostly may, others mostly not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_REMOVAL_LIMIT = 5.0  # seconds
_numbers = itertools.count()


class ControlGroup:
    """The folders of a group, one a controller in version 1. `make` makes it, `remove` ends all that is in it."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    @property
    def members(self) -> list[Path]:
        """The files that a process is put into the group by."""
        return [folder / "cgroup.procs" for folder in self._folders]

    def memory_ran_out(self) -> bool:
        """Whether the kernel has ended a process of the group for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            for folder in self._folders:
                with contextlib.suppress(OSError):
                    counts = dict(line.split() for line in (folder / name).read_text().splitlines())
                    return int(counts.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        """End every process in the group, wait for their end, and remove the group.

        Raises:
            OSError: it cannot be removed in five seconds.
        """
        give_up = time.monotonic() + _REMOVAL_LIMIT
        for folder in self._folders:
            while True:
                for pid in _pids(folder):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                try:
                    folder.rmdir()
                    break
                except OSError:  # a process of it is still going
                    if time.monotonic() > give_up:
                        raise
                    time.sleep(0.002)


def make(*, processes: int, memory: int, root: Path = ROOT) -> ControlGroup | None:
    """A new group below this process's own, or below the topmost; None where there is no such interface or this user may not use it.

    Args:
        processes: at most so many processes and threads.
        memory: of all together, in bytes, files in memory included.
        root: where the interface is mounted.
    """
    name = f"sharpen-{os.getpid()}-{next(_numbers)}"
    if (root / "cgroup.controllers").exists():
        limits = {"pids.max": processes, "memory.max": memory}
        made = next(_tried(_own_paths(root, ""), name, limits), None)
        return ControlGroup([made]) if made else None
    folders: list[Path] = []
    for controller, limits in (("pids", {"pids.max": processes}), ("memory", {"memory.limit_in_bytes": memory})):
        made = next(_tried(_own_paths(root / controller, controller), name, limits), None)
        if made:
            folders.append(made)
    return ControlGroup(folders) if folders else None


def _own_paths(root: Path, controller: str) -> list[Path]:
    """This process's own group, and the topmost."""
    try:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    return [*(root / path.lstrip("/") for _, names, path in lines if controller in names.split(",")), root]


def _tried(parents: list[Path], name: str, limits: dict[str, int]) -> Iterator[Path]:
    """The group below each parent in which it can be made, with its limits."""
    for parent in parents:
        _sweep(parent)
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for file, value in limits.items():
                with (folder / file).open("r+") as opened:  # a controller that is off has no such file
                    opened.write(str(value))
        except OSError:
            folder.rmdir()
            continue
        yield folder


@cache
def _sweep(parent: Path) -> None:
    """Remove the empty groups that processes left that were killed."""
    with contextlib.suppress(OSError):
        for folder in parent.glob("sharpen-*-*"):
            owner = folder.name.split("-")[1]
            if owner.isdigit() and not Path("/proc", owner).exists():
                folder.rmdir()


def _pids(folder: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    return []
