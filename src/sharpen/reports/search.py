"""Ways to an answer at equal generated tokens: a table, files and a plot."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from sharpen.evaluation.intervals import Estimate
from sharpen.reports.curves import COLOURS
from sharpen.reports.tables import ruled
from sharpen.search.compare import MAJORITY

if TYPE_CHECKING:
    from sharpen.pipelines.search import Searched
    from sharpen.search.compare import Row

COLUMNS = ("strategy", "budget", "accuracy", "low", "high", "gain", "gain_low", "gain_high", "tokens", "seconds")
MARKS = "osD^vP*X"


def search_tables(found: Searched, *, title: str) -> Iterator[RenderableType]:
    """A table with a part for each budget."""
    table = ruled(title)
    table.add_column("", no_wrap=True)
    for name in ("accuracy, %", "over majority", "tokens", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, row in enumerate(found.rows):
        last = place + 1 == len(found.rows) or found.rows[place + 1].budget != row.budget
        table.add_row(
            row.strategy,
            _cell(row.accuracy),
            _cell(row.gains[MAJORITY], signed=True) if MAJORITY in row.gains else "",
            f"{row.tokens:,.0f}",
            f"{row.seconds:,.1f}",
            style="dim" if "oracle" in row.strategy else None,
            end_section=last,
        )
    yield table
    settings = found.settings
    lines = [
        f"{settings['problem_count']} problems · led by: {found.baseline} · 95 % intervals over problems · tokens generated a problem",
        "oracle: by the ground truth, which nobody has; a ceiling, not a way to an answer",
    ]
    if any("(log p)" in row.strategy for row in found.rows):
        lines.append("log p: by the mean log-probability of a token, for want of a reward")
    for row in found.rows:
        others = [f"{_cell(gain, signed=True)} over {name}" for name, gain in row.gains.items() if name != MAJORITY]
        if others:
            lines.append(f"{row.strategy}, {row.budget:,} tokens: {'; '.join(others)}")
    lines += [f"{row.strategy}, {row.budget:,} tokens: {_without(row)}" for row in found.rows if row.notes.get("without_answer")]
    yield Text("\n".join(lines), style="dim")


def _without(row: Row) -> str:
    count = row.notes["without_answer"]
    return f"{count} of {len(row.scores)} problems without a finished answer; they count as wrong"


def _cell(estimate: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    text = f"{100 * estimate.value + 0.0:{sign}.1f}"
    if math.isnan(estimate.low):
        return text
    return f"{text} [{100 * estimate.low + 0.0:{sign}.1f}, {100 * estimate.high + 0.0:{sign}.1f}]"


def write(found: Searched, folder: Path) -> list[Path]:
    """Write `search.json`, `search.csv` and `search.png` into a folder, each whole or not at all; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"settings": found.settings, "problems": [one.id for one in found.problems], "rows": [_plain(row) for row in found.rows]}
    temporary = folder / "search.writing"
    temporary.write_text(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, folder / "search.json")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_values(row) for row in found.rows)
    os.replace(temporary, folder / "search.csv")
    return [folder / "search.json", folder / "search.csv", plot(found, folder / "search.png")]


def _plain(row: Row) -> dict[str, Any]:
    gains = {name: gain.to_dict() for name, gain in row.gains.items()}
    kept = {name: getattr(row, name) for name in ("strategy", "budget", "tokens", "seconds")}
    return kept | {
        "accuracy": row.accuracy.to_dict(),
        "gains": gains,
        "scores": list(row.scores),
        "spent": list(row.spent),
        "notes": dict(row.notes),
    }


def _values(row: Row) -> list[Any]:
    over = row.gains.get(MAJORITY)
    gain: list[Any] = ["", "", ""] if over is None else [over.value, over.low, over.high]
    accuracy = row.accuracy
    budget = "" if row.budget is None else row.budget
    return [row.strategy, budget, accuracy.value, accuracy.low, accuracy.high, *gain, row.tokens, row.seconds]


def plot(found: Searched, path: Path) -> Path:
    """Draw accuracy over generated tokens, a line a strategy with the band of its 95 % interval; write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.6, 5.0), layout="constrained")
    names = list(dict.fromkeys(row.strategy for row in found.rows))
    for place, name in enumerate(names):
        rows = [row for row in found.rows if row.strategy == name]
        aside = 1.03 ** (place - len(names) / 2)  # so that intervals at one budget stand side by side
        _draw(axes, rows, name, COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)], aside)
    ticks = sorted({row.budget or round(row.tokens) for row in found.rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="tokens generated a problem (points of one budget side by side)", ylabel="right, %")
    axes.set_title(f"{len(found.problems)} problems, led by: {found.baseline}; 95 % intervals over problems", fontsize=9)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    temporary = path.with_suffix(".writing")
    figure.savefig(temporary, dpi=130, format="png", metadata={"Software": None})
    pyplot.close(figure)
    os.replace(temporary, path)
    return path


def _draw(axes: Any, rows: Sequence[Row], name: str, colour: str, mark: str, aside: float) -> None:
    tokens = [row.tokens * aside for row in rows]
    values, lows, highs = ([100 * getattr(row.accuracy, end) for row in rows] for end in ("value", "low", "high"))
    style = "--" if "oracle" in name else "-"
    axes.plot(tokens, values, style, color=colour, marker=mark, markersize=5, label=name, linewidth=1.6)
    axes.vlines(tokens, lows, highs, color=colour, alpha=0.35, linewidth=1.2)
