"""What the benchmarks share: prompts, timing, alternation, statistics, peak memory, workers of other interpreters, and the record.

Only the standard library is imported here: the workers that run TRL or vLLM read this file in an interpreter that may lack sharpen, and a
parent that starts workers stays small (see `peak_memory`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
MARK = "@result "  # begins the one line of a worker's output that is for its parent; libraries print what they like beside it
ALTERNATIONS = 3  # fewer say nothing about the spread
NAMES = ("Ines", "Oskar", "Mei", "Tomas", "Leila", "Bram", "Yuki", "Nora")
STORY = (
    "{name} looks after a small lending library. On Monday {a} books stand on its shelves. During the week readers borrow {b} of them, "
    "{c} others are brought back, and a school gives {d} crates of 9 books each. On Saturday {name} finds 4 torn books, throws them "
    "away, and sells half of what is left for 2 coins a piece. How many coins does {name} take in? Reason step by step, and put the "
    "answer in \\boxed{{}}."
)


def story(index: int) -> str:
    """A word problem; no two indices below 8,000 give the same."""
    return STORY.format(name=NAMES[index % 8], a=60 + index // 8 % 100, b=15 + index // 800, c=7, d=2 + index % 5)


def prompts(tokenizer: Any, count: int, *, first: int = 0) -> list[tuple[int, ...]]:
    """Token ids of `count` stories, written by the model's own chat template."""
    chats = [[{"role": "user", "content": story(first + i)}] for i in range(count)]
    return [tuple(tokenizer.apply_chat_template(c, add_generation_prompt=True, tokenize=True, return_dict=False)) for c in chats]


def reward(text: str) -> float:
    """A reward that costs nothing and differs within a group: what is measured is the step, not the grader."""
    return float(len(text) % 7)


# --- options -------------------------------------------------------------------------------------------------------------------------


def parser(doc: str | None, *, problems: int = 8, group: int = 8, new: int = 64) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    out = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    out.add_argument("--model", default="embedded", help="a Hugging Face folder, `embedded` or `tiny`")
    out.add_argument("--problems", type=int, default=problems, help="prompts of a step")
    out.add_argument("--group", type=int, default=group, help="completions of each prompt")
    out.add_argument("--new", type=int, default=new, help="tokens of each completion, exactly")
    out.add_argument("--dtype", default="bfloat16", help="of the weights, on every side")
    out.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="CPU threads, on every side")
    out.add_argument("--device", default="cpu", help="cpu or cuda")
    out.add_argument("--runs", type=int, default=ALTERNATIONS, help="alternations; fewer than 3 are no measurement")
    out.add_argument("--json", type=Path, help="write all figures to this file")
    return out


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """The options for the record, without where things lie on this machine."""
    left_out = ("json", "worker", "vllm_python", "trl_python", "lm_eval_python", "output", "write_task")
    known = {name: value for name, value in vars(args).items() if name not in left_out}
    return known | ({"model": Path(args.model).name} if "model" in known else {})


def in_worker(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Run the same command again, as the worker of that name."""
    return run_worker([sys.executable, sys.argv[0], *sys.argv[1:], "--worker", name], threads=args.threads)


# --- timing --------------------------------------------------------------------------------------------------------------------------


def synchronise(device: str) -> None:
    """Wait for what an accelerator has still to do, so that a clock read now counts it."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def seconds(work: Callable[[], object], device: str = "cpu") -> float:
    """How long `work` takes."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def best_seconds(work: Callable[[], object], device: str = "cpu", *, repeats: int = 5, at_least: float = 0.1) -> float:
    """The shortest of several runs, for limits: what the machine can do at best. At least `repeats` runs and `at_least` seconds."""
    work()
    found: list[float] = []
    while len(found) < repeats or sum(found) < at_least:
        found.append(seconds(work, device))
    return min(found)


def alternate(sides: Mapping[str, Callable[[], T]], runs: int) -> dict[str, list[T]]:
    """Run the sides in turn, `runs` times round: what slows the machine for a while then slows both sides of a pair."""
    out: dict[str, list[T]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, run in sides.items():
            out[name].append(run())
    return out


# --- statistics ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """How many times as much a peer takes: the median over pairs of neighbouring runs, and the smallest and the largest of them."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Ratio:
    """peer / ours, pair by pair."""
    each = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
    return Ratio(statistics.median(each), min(each), max(each), len(each))


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost against log size by least squares: k where cost grows as size to the power of k."""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return statistics.linear_regression(x, y).slope


# --- memory --------------------------------------------------------------------------------------------------------------------------


def peak_memory(device: str = "cpu") -> dict[str, int | None]:
    """The most bytes this process has held: resident, and on the accelerator where it is one.

    `getrusage` hands a parent's peak on to a child that was forked from it, through the exec. Linux counts that of the program alone
    beside it (VmHWM), so that is read where there is one.
    """
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                resident = int(line.split()[1]) * 1024
    on_device = None
    if device.startswith("cuda"):
        import torch

        on_device = torch.cuda.max_memory_allocated()
    return {"resident": resident, "device": on_device}


def largest(peaks: Sequence[Mapping[str, int | None]], device: str) -> int:
    """The largest of several processes' peaks, on the device that is measured."""
    kind = "device" if device.startswith("cuda") else "resident"
    return max(int(peak[kind] or 0) for peak in peaks)


def human(size: float) -> str:
    """Bytes as text."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


# --- workers -------------------------------------------------------------------------------------------------------------------------


def here(name: str) -> str:
    """The path of a file of this folder."""
    return str(Path(__file__).with_name(name))


def environment_of_worker(threads: int) -> dict[str, str]:
    """The variables that a worker starts with: the same threads for whoever runs, and no network."""
    count = str(threads)
    fixed = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **fixed}


def run_worker(command: Sequence[str], *, threads: int) -> dict[str, Any]:
    """Run a program to its end and return what it reported.

    Raises:
        RuntimeError: it failed, or reported nothing; with the end of what it wrote.
    """
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run([*command], stdout=subprocess.PIPE, stderr=errors, text=True, check=False, env=environment_of_worker(threads))
        errors.seek(0)
        tail = errors.read()[-2000:]
    if (found := reported(done.stdout.splitlines())) is None or done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-1000:]}{tail}")
    return found


def reported(lines: Sequence[str]) -> dict[str, Any] | None:
    """The report among these lines of output, or None."""
    for line in lines:
        if line.startswith(MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return found
    return None


def report(result: Mapping[str, Any]) -> None:
    """Hand a result to the parent."""
    print(MARK + json.dumps(result), flush=True)


# --- the record ----------------------------------------------------------------------------------------------------------------------


def cpu_model() -> str:
    """The processor as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def environment(threads: int, device: str) -> dict[str, Any]:
    """What a figure depends on beside the code; imports torch, so it is asked for when the workers are done."""
    import torch
    import transformers

    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def finish(record: dict[str, Any], path: Path | None) -> None:
    """Print the environment, say when there were too few runs, and write the record if a file was asked for."""
    from rich.console import Console

    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in record["environment"].items()), style="dim", highlight=False)
    if record["settings"].get("runs", ALTERNATIONS) < ALTERNATIONS:
        console.print(f"Fewer than {ALTERNATIONS} alternations: a trial, not a measurement.", style="yellow")
    if path is not None:
        path.write_text(json.dumps(record, indent=2, default=_plain) + "\n", encoding="utf-8")
        console.print(f"Written: {path}", highlight=False)


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Ratio) else str(value)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; the first column is text, the others are figures."""
    from rich.console import Console
    from rich.table import Table

    out = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        out.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        out.add_row(*(str(cell) for cell in row))
    Console().print(out)
