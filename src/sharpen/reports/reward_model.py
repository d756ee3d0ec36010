"""A reward model's figures for the terminal, and its reliability as a plot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.reward_quality import Quality
from sharpen.reports.tables import ruled

NAMES = {
    "accuracy": "accuracy",
    "auc": "right above wrong (AUC)",
    "within": "… of the same problem",
    "chosen": "right, the best of a problem's",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


def tables(quality: Quality, fit: Mapping[str, Any]) -> Iterator[Table]:
    """Figures with intervals, then the reliability table."""
    out = ruled(f"Reward model on {quality.examples:,} held-out {quality.kind} of {quality.problems:,} problems")
    out.add_column("", no_wrap=True)
    for heading in ("value", "95 % interval", "knows nothing"):
        out.add_column(heading, justify="right", no_wrap=True)
    for name, label in NAMES.items():
        one: Estimate = getattr(quality, name)
        if not math.isnan(one.value):
            out.add_row(label, f"{one.value:.3f}", _interval(one), _nothing(quality, name))
    learned = f"fitted to {fit['labels']:,} labels in {fit['updates']:,} updates · loss {fit['first_loss']:.3f} → {fit['last_loss']:.3f}"
    balance = "" if math.isnan(quality.positive) else f" · {quality.positive:.0%} right"
    out.caption, out.caption_justify, out.caption_style = learned + balance, "left", "dim"
    yield out
    what = "preferred" if quality.kind == "pairs" else "right"
    bins = ruled("Reliability")
    for heading in ("it says", "count", "on average", f"share {what}"):
        bins.add_column(heading, justify="right", no_wrap=True)
    for part in quality.reliability:
        if part.count:
            bins.add_row(f"{part.low:.2f} to {part.high:.2f}", f"{part.count:,}", f"{part.probability:.3f}", f"{part.right:.3f}")
    yield bins


def plot(quality: Quality, path: Path) -> Path:
    """Draw what the model says against how often that is so, and how many it says that of; write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [part for part in quality.reliability if part.count]
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(5.2, 5.6), sharex=True, height_ratios=(3, 1), layout="constrained")
    above.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    above.plot([part.probability for part in shown], [part.right for part in shown], marker="o", color="#0072b2", label="the model")
    what = "preferred" if quality.kind == "pairs" else "right"
    above.set(ylabel=f"share {what}", xlim=(0, 1), ylim=(-0.02, 1.02), title=f"{quality.examples:,} held-out {quality.kind}")
    above.legend(frameon=False)
    middles = [(part.low + part.high) / 2 for part in quality.reliability]
    below.bar(middles, [part.count for part in quality.reliability], width=0.9 / len(middles), color="#0072b2", alpha=0.5)
    below.set(xlabel="probability that the model gives", ylabel="count")
    for axis in (above, below):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _interval(one: Estimate) -> str:
    return "–" if math.isnan(one.low) else f"{one.low:.3f} to {one.high:.3f}"


def _nothing(quality: Quality, name: str) -> str:
    """The figure of a model that gives every example the same: the mean label, or a coin for pairs."""
    if name in ("auc", "within") or (name == "accuracy" and math.isnan(quality.positive)):
        return "0.5"
    if name == "accuracy":
        return f"{quality.majority:.3f}"
    if name == "chosen":
        return f"{quality.positive:.3f}"
    if name == "brier":
        return "0.25" if math.isnan(quality.positive) else f"{quality.positive * (1 - quality.positive):.3f}"
    return "0"
