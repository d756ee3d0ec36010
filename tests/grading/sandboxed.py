"""What the tests of the sandbox share: whether there is one, and what a run may not leave behind."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

import psutil

from sharpen.errors import SandboxError
from sharpen.grading.sandbox import Sandbox

HARNESS = "What runs inside the sandbox."  # in the command line of every process of a run


@functools.cache
def why_not() -> str | None:
    """Why nothing can be tested under bubblewrap here; None where it works."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    try:
        Sandbox().check()
    except SandboxError as error:
        return f"bubblewrap does not work here: {error.what}"
    return None


def traces() -> dict[str, set[str]]:
    """What there is of runs on this machine: processes (dead ones that nobody buried too), control groups, folders."""
    ours = {f"{child.pid} {child.name()}" for child in psutil.Process().children(recursive=True)}
    running = {str(process.pid) for process in psutil.process_iter(["cmdline"]) if HARNESS in " ".join(process.info["cmdline"] or [])}
    mine = f"sharpen-{os.getpid()}-*"
    groups = {str(folder) for folder in Path("/sys/fs/cgroup").rglob(mine)}
    files = {path.name for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith("sharpen-code-")}
    return {"children": ours, "running": running, "groups": groups, "folders": files, "fds": set(os.listdir("/proc/self/fd"))}
