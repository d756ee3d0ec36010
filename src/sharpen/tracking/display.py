"""Watching a run: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from sharpen.tracking.observer import Observer

BARS = "▁▂▃▄▅▆▇█"
COLUMNS = (
    # heading, width, metric, format
    ("step", 9, "", ""),
    ("reward", 8, "reward", ".3f"),
    ("right", 7, "pass_rate", ".0%"),
    ("length", 8, "length", ".1f"),
    ("KL", 7, "kl", ".4f"),
    ("entropy", 9, "entropy", ".2f"),
    ("clipped", 9, "clip_fraction", ".1%"),
    ("flat", 6, "zero_variance", ".0%"),
    ("tok/s", 8, "", ""),
    ("left", 8, "", ""),
)
LEGEND = "right: share of right completions · length: tokens · KL: nats a token from the reference · flat: groups of equal rewards"


class Pace:
    """Time left, from the pace of the last steps: answers grow or shrink, so early steps tell little of late ones."""

    def __init__(self, window: int = 10) -> None:
        self.window, self.seconds = window, list[float]()

    def left(self, step: int, total: int, seconds: float) -> float:
        """Seconds left after a step that took `seconds`."""
        self.seconds = [*self.seconds, seconds][-self.window :]
        return (total - step) * sum(self.seconds) / len(self.seconds)


def row(step: int, total: int, metrics: Mapping[str, float], seconds: Mapping[str, float], left: float) -> list[str]:
    """The cells of a step, one a column; a metric that the run does not have is a dash."""
    out = []
    for heading, _, name, form in COLUMNS:
        value = metrics.get(name, math.nan)
        if heading == "step":
            out.append(f"{step}/{total}")
        elif heading == "tok/s":
            out.append(f"{seconds.get('tokens_per_second', 0):,.0f}")
        elif heading == "left":
            out.append(clock(left))
        else:
            out.append("–" if math.isnan(value) else format(value, form))
    return out


def expected_zeros(step: int, metrics: Mapping[str, float]) -> list[str]:
    """Why a metric of the first step is zero where it has to be."""
    if step != 1:
        return []
    out = []
    if metrics.get("clip_fraction") == 0.0:
        out.append("clipped is 0 while the policy is still the old policy (one update a rollout): every ratio is 1")
    if abs(metrics.get("loss", 1.0)) < 1e-6:
        out.append("the loss is 0 on-policy, since advantages sum to 0 in each group; its gradient is not")
    if abs(metrics.get("kl", 1.0)) < 1e-6:
        out.append("KL is 0 before the first update: the policy is the reference")
    elif "kl" not in metrics and "entropy" in metrics:  # the policy was trained
        out.append("KL has a dash: without a KL term no reference is compared with")
    return out


def clock(seconds: float) -> str:
    """Seconds as `1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def sparkline(values: list[float], width: int) -> str:
    """The values as a line of bars from 0 to the largest, in at most `width` characters (each a mean of its share)."""
    values = [value for value in values if not math.isnan(value)]
    size = max(1, math.ceil(len(values) / width))
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    top = max([1e-9, *means])
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, value) / top * len(BARS)))] for value in means)


class Plain:
    """Plain lines, one a step, for logs."""

    def __init__(self, console: Console) -> None:
        self.console, self.pace = console, Pace()

    def phase(self, name: str, total: int, unit: str = "completions") -> None:
        """See `Observer.phase`; only the long ones outside of steps are told."""
        if name not in ("rollout", "training"):
            self._line(f"{name} ({total} {unit})" if total else name)

    def advance(self, count: int) -> None:
        """See `Observer.advance`."""

    def step(self, step: int, total: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        cells = row(step, total, metrics, seconds, self.pace.left(step, total, seconds["step"]))
        self._line("  ".join(f"{heading} {cell}" for (heading, *_), cell in zip(COLUMNS, cells, strict=True)))
        for text in expected_zeros(step, metrics):
            self._line(f"note: {text}")

    def notice(self, text: str) -> None:
        """See `Observer.notice`."""
        self._line(text)

    def _line(self, text: str) -> None:
        self.console.print(f"[{time.strftime('%H:%M:%S')}] {text}", highlight=False, markup=False, soft_wrap=True)


class Terminal:
    """A row a step that scrolls by, above bars for the run and for what it is doing."""

    def __init__(self, console: Console) -> None:
        self.console, self.pace, self.rewards, self.steps = console, Pace(), list[float](), 0
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", justify="right"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self.run = self.progress.add_task("steps", total=None, visible=False)
        self.part = self.progress.add_task("starting", total=None)
        self.live = Live(self._footer(), console=console, refresh_per_second=8)

    def phase(self, name: str, total: int, unit: str = "completions") -> None:
        """See `Observer.phase`."""
        self.progress.reset(self.part, description=name, total=total or None)

    def advance(self, count: int) -> None:
        """See `Observer.advance`."""
        self.progress.advance(self.part, count)

    def step(self, step: int, total: int, metrics: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        if self.steps % 20 == 0:
            heading = "".join(f"{name:>{width}}" for name, width, *_ in COLUMNS)
            self.console.print(Text(heading, style="bold"))
            if self.steps == 0:
                self.console.print(Text(LEGEND, style="dim"))
        self.steps += 1
        cells = row(step, total, metrics, seconds, self.pace.left(step, total, seconds["step"]))
        line = Text()
        for (name, width, *_), cell in zip(COLUMNS, cells, strict=True):
            line.append(f"{cell:>{width}}", style="cyan" if name in ("reward", "right") else "")
        self.console.print(line)
        for text in expected_zeros(step, metrics):
            self.console.print(Text(f"  {text}", style="dim"))
        self.rewards.append(metrics.get("reward", math.nan))
        self.progress.update(self.run, total=total, completed=step, visible=True)
        self.live.update(self._footer())

    def notice(self, text: str) -> None:
        """See `Observer.notice`."""
        self.console.print(Text(text, style="yellow"))

    def _footer(self) -> Group:
        if not self.rewards:
            return Group(self.progress)
        line = Text("reward ", style="bold") + Text(sparkline(self.rewards, max(10, self.console.width - 20)), style="cyan")
        return Group(line + Text(f" {self.rewards[-1]:.3f}"), self.progress)


@contextmanager
def watching(console: Console | None = None) -> Iterator[Observer]:
    """An observer that shows a run: live in a terminal, plain lines elsewhere."""
    console = console or Console(file=sys.stderr)
    if not console.is_terminal:
        yield Plain(console)
        return
    display = Terminal(console)
    with display.live:
        yield display
