"""Learning curves of methods side by side: a plot, and a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from sharpen.reports.tables import ruled

if TYPE_CHECKING:
    from sharpen.pipelines.compare_methods import Curve, Paired

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000", "#999933", "#882255", "#44aa99")
"""Apart for colour-blind readers too (Okabe and Ito, then Tol)."""


def plot(curves: Sequence[Curve], path: Path, *, metrics: Sequence[str] | None = None) -> Path:
    """Draw a panel for each metric, a line for each method with the band of its 95 % interval over seeds; write a PNG.

    Args:
        curves: the methods.
        path: of the PNG.
        metrics: which; left out, Pass@1 and the Pass@K and Maj@K of the largest K.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = list(metrics or headline(curves[0]))
    figure, axes = pyplot.subplots(1, len(shown), figsize=(5.2 * len(shown), 4.4), squeeze=False, layout="constrained")
    for axis, metric in zip(axes[0], shown, strict=True):
        for curve, colour in zip(curves, COLOURS * (1 + len(curves) // len(COLOURS)), strict=False):
            mean, margin = curve.mean(metric), curve.margin(metric)
            axis.plot(curve.steps, mean, color=colour, label=curve.label, linewidth=1.8)
            axis.fill_between(
                curve.steps,
                [m - d for m, d in zip(mean, margin, strict=True)],
                [m + d for m, d in zip(mean, margin, strict=True)],
                color=colour,
                alpha=0.10,
                linewidth=0,
            )
        axis.set(title=name(metric) + " on held-out problems", xlabel="step")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    seeds = len(next(iter(curves[0].values.values())))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(curves), 5), frameon=False)
    figure.suptitle(f"mean of {seeds} seeds, bands: 95 % intervals of the mean", fontsize=9, color="0.4")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def table(curves: Sequence[Curve]) -> Table:
    """Each method before and after, with its 95 % interval over seeds, and what its runs spent."""
    shown = headline(curves[0])
    seeds = len(next(iter(curves[0].values.values())))
    out = Table(
        title="Methods side by side", title_style="bold", title_justify="left", box=box.HORIZONTALS, show_edge=False, pad_edge=False,
        caption=f"held-out problems, % · mean of {seeds} seeds ± half the 95 % interval of the mean", caption_justify="left",
    )  # fmt: skip
    out.add_column("method", style="cyan", no_wrap=True)
    for metric in shown:
        out.add_column(f"{name(metric)} before", justify="right", no_wrap=True)
        out.add_column("after", justify="right", no_wrap=True)
    for heading in ("length", "updates", "completions", "value model", "s"):
        out.add_column(heading, justify="right", no_wrap=True)
    for curve in curves:
        cells = []
        for metric in shown:
            mean, margin = curve.mean(metric), curve.margin(metric)
            cells += [f"{100 * mean[0]:.1f}", f"{100 * mean[-1]:.1f} ± {100 * margin[-1]:.1f}"]
        totals = {key: sum(values) / len(values) for key, values in curve.totals.items()}
        out.add_row(
            curve.label,
            *cells,
            f"{curve.mean('mean_length')[-1]:.1f}",
            f"{totals['updates']:,.0f}",
            f"{totals['completions']:,.0f}",
            f"{totals['value_parameters']:,.0f}",
            f"{totals['seconds']:.0f}",
        )
    return out


def claims_table(claims: Sequence[Paired]) -> Table:
    """What the runs say of each claim."""
    out = ruled("Claims")
    for heading in ("claim", "compared"):
        out.add_column(heading, no_wrap=True)
    out.add_column("difference", justify="right", no_wrap=True)
    out.add_column("the runs say", no_wrap=True)
    for one in claims:
        out.add_row(one.name, f"{one.better} − {one.than}, {name(one.metric)}", _difference(one), one.word)
    out.caption = "after the last step, seed by seed; ± half the 95 % interval of the mean over seeds; holds: all of it above 0"
    out.caption_justify = "left"
    return out


def baseline_table(found: Sequence[Paired]) -> Table:
    """Each label less the baseline: a row a label, and for each metric the difference and whether the label is the better one."""
    metrics = list(dict.fromkeys(one.metric for one in found))
    out = ruled(f"Against {found[0].than}")
    out.add_column("method", style="cyan", no_wrap=True)
    for metric in metrics:
        out.add_column(name(metric), justify="right", no_wrap=True)
        out.add_column("better?", no_wrap=True)
    for label in dict.fromkeys(one.better for one in found):
        rows = [one for one in found if one.better == label]
        out.add_row(label, *(cell for one in rows for cell in (_difference(one), one.word)))
    out.caption = (
        "differences after the last step, seed by seed; ± half the 95 % interval of the mean over seeds; each by itself: "
        "of methods that are equal, one interval in twenty leaves 0 out"
    )
    out.caption_justify = "left"
    return out


def _difference(one: Paired) -> str:
    """`+1.2 ± 0.8 %`; shares in %."""
    scale, unit = (100, " %") if "@" in one.metric or one.metric == "finished" else (1, "")
    interval = "" if math.isnan(one.margin) else f" ± {scale * one.margin:.1f}"
    return f"{scale * one.mean:+.1f}{interval}{unit}"


def headline(curve: Curve) -> list[str]:
    """Pass@1, and Pass@K and Maj@K of the largest K."""
    largest = max(int(metric.partition("@")[2]) for metric in curve.values if metric.startswith("pass@"))
    return list(dict.fromkeys(["pass@1", f"pass@{largest}", f"maj@{largest}"]))


def name(metric: str) -> str:
    """`pass@1` as `Pass@1`, `mean_length` as `mean length`."""
    return metric.capitalize() if "@" in metric else metric.replace("_", " ")
