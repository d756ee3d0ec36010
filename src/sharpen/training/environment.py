"""On what a run was carried out: versions, machine, threads and types. It differs between equal runs, so it is in a file of its own.

    {"starts": [{"from_step": 1, "packages": {"torch": "2.13.0", ...}, "threads": 2, "dtype": "float32", ...}]}

Each start of a run adds an entry, for a run may go on elsewhere. No host name and no path are in it: reports are passed on.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from sharpen import __version__
from sharpen.errors import RunError
from sharpen.training.run_folder import RunFolder

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow", "math-verify", "peft", "reasoning-gym")
"""Those whose versions are written down, where they are installed."""


def describe(resolved: Mapping[str, Any], *, from_step: int) -> dict[str, Any]:
    """What this process runs on, as plain values.

    Args:
        resolved: what was chosen for the run: device, dtype, threads, token budget.
        from_step: the first step that it will make, counted from 1.
    """
    import psutil

    versions = {name: version for name in PACKAGES if (version := _version(name)) is not None}
    devices = [torch.cuda.get_device_properties(index).name for index in range(torch.cuda.device_count())]
    return {
        "from_step": from_step,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "sharpen": __version__,
        "python": platform.python_version(),
        "packages": versions,
        "system": platform.platform(),
        "processor": processor(Path("/proc/cpuinfo")),
        "cpus": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "memory": int(psutil.virtual_memory().total),
        "gpus": devices,
        **resolved,
    }


def add(folder: RunFolder, entry: Mapping[str, Any]) -> None:
    """Write an entry after those of earlier starts; one that begins at the first step stands alone."""
    earlier = read(folder) if entry["from_step"] > 1 else []
    folder.write_json(folder.environment, {"starts": [*earlier, dict(entry)]})


def read(folder: RunFolder) -> list[dict[str, Any]]:
    """The entries of a run, the first start first; empty where the run did not record any.

    Raises:
        RunError: the file is not what `add` writes.
    """
    if not folder.environment.is_file():
        return []
    try:
        starts = json.loads(folder.environment.read_text(encoding="utf-8"))["starts"]
        if not isinstance(starts, list) or not all(isinstance(one, dict) for one in starts):
            raise TypeError("`starts` is no list of objects")
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{folder.environment}: this is no record of an environment: {type(error).__name__}: {error}.",
            fix="Delete the file: nothing but reports reads it.",
        ) from error
    return starts


def processor(cpuinfo: Path) -> str:
    """The processor's name, where the system tells it; else its architecture."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
