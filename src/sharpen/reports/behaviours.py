"""How completions changed over training: a table for the terminal, every number as CSV, curves as PNG."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sharpen.evaluation.behaviours import Behaviours, Place
from sharpen.reports.curves import COLOURS
from sharpen.reports.tables import ruled

BLOCKS = 5
SMOOTH_FROM = 30  # steps

# name, measure, of, factor, format
ROWS: tuple[tuple[str, str, str, float, str], ...] = (
    ("right, %", "accuracy", "all", 100, ".1f"),
    ("length, tokens", "length", "all", 1, ".1f"),
    ("  of right ones", "length", "right", 1, ".1f"),
    ("  of wrong ones", "length", "wrong", 1, ".1f"),
    ("cut at the limit, %", "cut", "all", 100, ".1f"),
    ("reflective words", "reflective_words", "all", 1, ".2f"),
    ("  of right ones", "reflective_words", "right", 1, ".2f"),
    ("  of wrong ones", "reflective_words", "wrong", 1, ".2f"),
    ("  in 1,000 tokens", "reflective_rate", "all", 1, ".2f"),
    ("other language, %", "other_language", "all", 100, ".1f"),
    ("format broken, %", "format_errors", "all", 100, ".1f"),
    ("no answer, %", "no_answer", "all", 100, ".1f"),
    ("repeated 20-grams, %", "repetition", "all", 100, ".1f"),
    ("entropy, nats a token", "entropy", "all", 1, ".2f"),
    ("groups without variance, %", "zero_variance", "all", 100, ".0f"),
)
# title, factor, unit, [(measure, of, label)]
PANELS: tuple[tuple[str, float, str, tuple[tuple[str, str, str], ...]], ...] = (
    ("length", 1, "tokens", (("length", "right", "right"), ("length", "wrong", "wrong"))),
    ("reflective words of a completion", 1, "words", (("reflective_words", "right", "right"), ("reflective_words", "wrong", "wrong"))),
    ("reflective words in 1,000 tokens", 1, "words", (("reflective_rate", "right", "right"), ("reflective_rate", "wrong", "wrong"))),
    ("words in another language", 100, "%", (("other_language", "right", "right"), ("other_language", "wrong", "wrong"))),
    ("repeated 20-grams", 100, "%", (("repetition", "right", "right"), ("repetition", "wrong", "wrong"))),
    ("entropy", 1, "nats a token", (("entropy", "right", "right"), ("entropy", "wrong", "wrong"))),
    (
        "form",
        100,
        "% of completions",
        (("cut", "all", "cut"), ("no_answer", "all", "no answer"), ("format_errors", "all", "format broken")),
    ),
    ("groups of equal rewards", 100, "%", (("zero_variance", "all", "all groups"),)),
)
DASHES = ("-", "--", "-.", ":")
MARKS = "osD^vP*X"


def behaviour_tables(found: Behaviours, *, title: str) -> Iterator[RenderableType]:
    """The figures in blocks of steps, between those of the held-out problems, then accuracy by level, then the notes."""
    yield _table(found, title)
    if levels := found.levels():
        yield Text("")
        yield _levels(found, levels)
    for note in found.notes:
        yield Text(f"note: {note}", style="yellow")


def write(found: Behaviours, folder: Path) -> list[Path]:
    """Write `behaviours.csv` and `behaviours.png` into a folder, each whole or not at all; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary, path = folder / "behaviours.writing", folder / "behaviours.csv"
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["place", "step", "measure", "of", "value", "count", "low", "high"])
        writer.writerows((one.place, one.step, one.measure, one.of, one.value, one.count, one.low, one.high) for one in found.figures)
    os.replace(temporary, path)
    return [path, plot(found, folder / "behaviours.png")]


def mean(series: Mapping[int, tuple[float, int]], steps: Sequence[int]) -> float | None:
    """The mean over these steps, a sum over sums; None where there is nothing."""
    known = [series[step] for step in steps if step in series]
    count = sum(things for _, things in known)
    return sum(value * things for value, things in known) / count if count else None


def blocks(steps: Sequence[int], count: int = BLOCKS) -> list[list[int]]:
    """The steps in at most so many runs of about equal length: `blocks([1, 2, 3], 2)` is [[1], [2, 3]]."""
    count = min(count, len(steps))
    ends = [len(steps) * i // count for i in range(count + 1)] if count else [0]
    return [list(steps[start:stop]) for start, stop in pairwise(ends)]


Band = Mapping[int, tuple[float, float]]


def panels(found: Behaviours) -> list[tuple[str, float, str, tuple[tuple[str, str, str], ...]]]:
    """What there is to draw: title, factor, unit, and the lines as (measure, of, label)."""
    levels = found.levels()
    accuracy = tuple(("accuracy", level, level) for level in levels) or (("accuracy", "all", "all"),)
    out = [("accuracy" + (" by level" if levels else ""), 100.0, "% right", accuracy)]
    for title, factor, unit, lines in PANELS:
        known = tuple(line for line in lines if any(found.series(line[0], line[1], place) for place in ("training", "held-out")))
        if known:
            out.append((title, factor, unit, known))
    return out


def smooth(series: Mapping[int, tuple[float, int]], band: Band) -> dict[int, tuple[float, float, float]]:
    """Running means over about a twelfth of the run with their intervals, by step: value, low, high.

    Steps are taken as independent: the half width is √Σ (w · half)² with the weights of the mean, w. Steps without an interval count as
    those around them do; NaN where most of a window has none.
    """
    steps, out = list(series), {}
    reach = len(steps) // 24 if len(steps) >= SMOOTH_FROM else 0
    for i, step in enumerate(steps):
        window = steps[max(0, i - reach) : i + reach + 1]
        known = [one for one in window if not math.isnan(band[one][0])]
        value = mean(series, window) or 0.0
        if 2 * len(known) < len(window):
            out[step] = (value, math.nan, math.nan)
            continue
        count = sum(series[one][1] for one in window)
        scale = math.sqrt(sum(series[one][1] ** 2 for one in window) / sum(series[one][1] ** 2 for one in known)) / count
        down = scale * math.hypot(*(series[one][1] * (series[one][0] - band[one][0]) for one in known))
        up = scale * math.hypot(*(series[one][1] * (band[one][1] - series[one][0]) for one in known))
        out[step] = (value, value - down, value + up)
    return out


def plot(found: Behaviours, path: Path) -> Path:
    """Draw a panel a measure over the steps, right and wrong completions apart; write a PNG.

    Thin lines are single steps, thick ones means over about a twelfth of the run, in bands of their 95 % intervals. A mark is an evaluation
    of held-out problems with its interval, that at step 0 of the model before training.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = panels(found)
    rows = -(-len(shown) // 3)
    figure, axes = pyplot.subplots(rows, 3, figsize=(15, 4.1 * rows), squeeze=False, layout="constrained")
    for axis, (title, factor, unit, lines) in zip(axes.flat, shown, strict=False):
        for i, (measure, of, label) in enumerate(lines):
            look: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)]}
            series, band = found.series(measure, of), found.bands(measure, of)
            _draw(axis, series, band, factor, look | {"linestyle": DASHES[i % len(DASHES)]}, label)
            mark = look | {"fmt": MARKS[i % len(MARKS)], "markersize": 6, "markeredgecolor": "white", "elinewidth": 1.0}
            _mark(axis, found, (measure, of), factor, mark | {"label": None if series else label})
        axis.set(title=title, xlabel="step", ylabel=unit)
        axis.set_ylim(0, _top(found, lines, factor))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:  # below the axes, where no line can run through it
            axis.legend(frameon=False, fontsize=8, ncols=min(len(lines), 5), loc="upper center", bbox_to_anchor=(0.5, -0.14))
    for axis in list(axes.flat)[len(shown) :]:
        axis.set_visible(False)
    told = (
        "completions of training, by step; marks: held-out problems, at step 0 before training; 95 % intervals by Student's t over problems"
    )
    figure.suptitle(told, fontsize=10, color="0.3")
    temporary = path.with_suffix(".writing")
    figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    pyplot.close(figure)
    os.replace(temporary, path)
    return path


def _top(found: Behaviours, lines: Sequence[tuple[str, str, str]], factor: float) -> float | None:
    """Room for the lines; bands of single steps may run out of it."""
    meant = {(measure, of) for measure, of, _ in lines}
    top = 1.5 * max(factor * one.value for one in found.figures if (one.measure, one.of) in meant)
    return None if top <= 0 else min(top, 103.0) if factor == 100 else top


def _draw(axis: Any, series: Mapping[int, tuple[float, int]], band: Band, factor: float, look: Mapping[str, Any], label: str) -> None:
    """A line over the steps in its band; from `SMOOTH_FROM` steps on, thin and below a running mean."""
    if not series:
        return
    steps, means = list(series), smooth(series, band)
    if len(steps) >= SMOOTH_FROM:
        axis.plot(steps, [factor * value for value, _ in series.values()], linewidth=0.6, alpha=0.35, color=look["color"])
    values, lows, highs = ([factor * one[k] for one in means.values()] for k in range(3))
    axis.fill_between(steps, lows, highs, color=look["color"], alpha=0.15, linewidth=0)
    axis.plot(steps, values, linewidth=2.0 if len(steps) >= SMOOTH_FROM else 1.6, label=label, **look)


def _mark(axis: Any, found: Behaviours, line: tuple[str, str], factor: float, look: Mapping[str, Any]) -> None:
    """The held-out figures, each with its interval."""
    series, band = found.series(*line, "held-out"), found.bands(*line, "held-out")
    if not series:
        return
    values = [value for value, _ in series.values()]
    halves = [
        [0.0 if math.isnan(low) else factor * (value - low) for value, (low, _) in zip(values, band.values(), strict=True)],
        [0.0 if math.isnan(high) else factor * (high - value) for value, (_, high) in zip(values, band.values(), strict=True)],
    ]
    axis.errorbar(list(series), [factor * value for value in values], yerr=halves, linestyle="none", **look)


def _table(found: Behaviours, title: str) -> Table:
    """A row a measure; columns are blocks of steps, between the held-out problems before and last."""
    table = ruled(title)
    table.add_column("", style="cyan", no_wrap=True)
    columns = list[tuple[Place, list[int]]]()
    held_out = found.steps("held-out")
    columns += [("held-out", [step]) for step in held_out if step == 0]
    columns += [("training", part) for part in blocks(found.steps())]
    columns += [("held-out", [step]) for step in held_out[-1:] if step > 0]
    for place, steps in columns:
        table.add_column(_heading(place, steps), justify="right")
    table.add_row("completions", *(f"{_count(found.series('accuracy', 'all', place), steps):,}" for place, steps in columns))
    for name, measure, of, factor, form in ROWS:
        values = [mean(found.series(measure, of, place), steps) for place, steps in columns]
        if any(value is not None for value in values):
            table.add_row(name, *("–" if value is None else format(factor * value, form) for value in values))
    return table


def _heading(place: Place, steps: Sequence[int]) -> str:
    span = f"{steps[0]}–{steps[-1]}" if len(steps) > 1 else str(steps[0])
    return f"steps {span}" if place == "training" else f"held-out, {'before' if steps[0] == 0 else f'step {span}'}"


def _count(series: Mapping[int, tuple[float, int]], steps: Sequence[int]) -> int:
    return sum(series.get(step, (0.0, 0))[1] for step in steps)


def _levels(found: Behaviours, levels: Sequence[str]) -> Table:
    """Accuracy by level: blocks of steps, then the held-out problems before and last."""
    table = ruled("Right by level, % (completions)")
    table.add_column("level", style="cyan")
    columns = list[tuple[Place, list[int]]]()
    columns += [("training", part) for part in blocks(found.steps(), 4)]
    columns += [("held-out", [step]) for step in dict.fromkeys(found.steps("held-out")[:1] + found.steps("held-out")[-1:])]
    for place, steps in columns:
        table.add_column(_heading(place, steps), justify="right")
    for level in levels:
        cells = []
        for place, steps in columns:
            series = found.series("accuracy", level, place)
            value = mean(series, steps)
            cells.append("–" if value is None else f"{100 * value:.1f} ({_count(series, steps):,})")
        table.add_row(level.removeprefix("level "), *cells)
    return table
