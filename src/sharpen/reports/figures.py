"""Every plot of a report as a PNG, and its numbers as a CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharpen.reports.behaviours import DASHES, MARKS
from sharpen.reports.curves import COLOURS
from sharpen.reports.plots import Line, Plot

LEGEND = 105
"""Letters of labels that stand side by side in a legend; more are cut off at the edge."""


def write(plots: Sequence[Plot], folder: Path) -> list[Path]:
    """Write KEY.png and KEY.csv for each plot into a folder, each whole or not at all; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    return [path for plot in plots for path in (table(plot, folder / f"{plot.key}.csv"), picture(plot, folder / f"{plot.key}.png"))]


def table(plot: Plot, path: Path) -> Path:
    """Every point of a plot: line, x, value and its 95 % interval."""
    temporary = path.with_suffix(".writing")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["line", plot.axis, "value", "low", "high"])
        writer.writerows(plot.rows())
    os.replace(temporary, path)
    return path


def picture(plot: Plot, path: Path) -> Path:
    """Draw a plot with bands of its intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    for line in plot.lines:
        _draw(axis, line, many=plot.axis == "step")
    if plot.band is not None:
        axis.axhspan(-plot.band, plot.band, color="0.85", zorder=0)
        axis.axhline(0, color="0.4", linewidth=0.8)
    if plot.axis == "K":
        ks = sorted({int(k) for line in plot.lines for k in line.x})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ks, [str(k) for k in ks])
        axis.minorticks_off()
    if plot.floor:
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]) if any(value < 0 for line in plot.lines for value in line.y) else 0.0)
    axis.set(title=plot.title, xlabel=plot.axis, ylabel=plot.unit)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > 1:
        columns = min(len(labels), 3, max(1, LEGEND // max(len(label) for label in labels)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    temporary = path.with_suffix(".writing")
    figure.savefig(temporary, dpi=120, format="png", metadata={"Software": None})
    pyplot.close(figure)
    os.replace(temporary, path)
    return path


def _draw(axis: Any, line: Line, *, many: bool) -> None:
    colour, dash = COLOURS[(0, 3, 2, 4, 1, 5, 6)[line.colour % 7]], line.dash % len(DASHES)
    if line.marks:
        axis.plot(line.x, line.y, linestyle="none", marker=MARKS[line.dash % len(MARKS)], color=colour, label=line.label)
        if line.low is not None and line.high is not None:
            axis.vlines(line.x, line.low, line.high, color=colour, linewidth=1.0)
        return
    if line.thin:
        axis.plot(line.x, line.y, color=colour, linewidth=0.6, alpha=0.4)
        return
    mark = {} if many and len(line.x) > 30 else {"marker": MARKS[line.dash % len(MARKS)], "markersize": 4}
    axis.plot(line.x, line.y, color=colour, linestyle=DASHES[dash], linewidth=1.8, label=line.label, **mark)
    if line.low is not None and line.high is not None:
        axis.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
