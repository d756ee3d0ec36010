"""Iterative training: its rounds and its reward models, as tables and as a plot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from sharpen.evaluation.intervals import Estimate
from sharpen.reports.tables import ruled

if TYPE_CHECKING:
    from sharpen.pipelines.iterative import Iterated

PLOT = "rounds.png"
_NONE = "–"


def tables(found: Iterated) -> Iterator[Table]:
    """The rounds, then the reward models."""
    rounds = ruled("Rounds")
    rounds.add_column("round", justify="right")
    for heading in ("reward, first → last step", "KL, first → last step", "right, % before", "after", "change"):
        rounds.add_column(heading, justify="right", no_wrap=True)
    for one in found.rounds:
        held_out = [_NONE] * 3
        if one.changes is not None:
            figures = one.changes.comparison
            held_out = [_percent(part.pass_at_k[1]) for part in (figures.before, figures.after)] + [_change(figures.change.pass_at_k[1])]
        rounds.add_row(str(one.number), _moved(one.first, one.last, "reward"), _moved(one.first, one.last, "kl"), *held_out)
    rounds.caption, rounds.caption_justify, rounds.caption_style = (
        "right: Pass@1 of held-out problems by the rule, 95 % intervals",
        "left",
        "dim",
    )
    yield rounds
    rewards = ruled("Reward models, each on fresh samples of the newest policy")
    rewards.add_column("after round", justify="right")
    for heading in (
        "fitted to",
        "replayed",
        "accuracy of the one before",
        "accuracy",
        "of the same problem, before",
        "of the same problem",
    ):
        rewards.add_column(heading, justify="right")
    for stage in found.rewards:
        older = [stage.before.accuracy, stage.before.within] if stage.before is not None else [None, None]
        accuracy, within = stage.after.accuracy, stage.after.within
        cells = [_share(one) for one in (older[0], accuracy, older[1], within)]
        rewards.add_row(str(stage.number), f"{stage.examples:,}", f"{stage.replayed:,}", *cells)
    yield rewards


def plot(found: Iterated, path: Path) -> Path:
    """Draw the held-out accuracy over rounds, and each reward model against the one before it on the same fresh samples; write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    for one in found.rounds:
        if one.changes is not None:
            figures = one.changes.comparison
            ends = [figures.before.pass_at_k[1], figures.after.pass_at_k[1]]
            left.errorbar(
                [one.number - 1 + 0.06, one.number - 0.06],
                [e.value for e in ends],
                yerr=_bars(ends),
                marker="o",
                capsize=3,
                color="#0072b2",
            )
    left.set(title="Pass@1 on held-out problems, by the rule", xlabel="rounds of training", xticks=range(len(found.rounds) + 1))
    places = [float(stage.number) for stage in found.rewards]
    for name, colour, shift in (("accuracy", "#0072b2", -0.05), ("within", "#d55e00", 0.05)):
        label = {"accuracy": "accuracy", "within": "right above wrong of the same problem"}[name]
        after = [getattr(stage.after, name) for stage in found.rewards]
        moved = [place + shift for place in places]
        right.errorbar(moved, [e.value for e in after], yerr=_bars(after), marker="o", capsize=3, color=colour, label=label)
        older = [(stage.number + shift, getattr(stage.before, name).value) for stage in found.rewards if stage.before is not None]
        right.plot(*zip(*older, strict=True), "x", color=colour, label=f"{label}: the one before, not yet refitted")
    right.axhline(0.5, color="0.6", linewidth=1, linestyle="--")
    right.set(title="Reward models on fresh samples of the newest policy", xlabel="rounds of training", xticks=places, ylim=(0, 1))
    right.legend(frameon=False, fontsize=8, loc="lower left")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _bars(estimates: list[Estimate]) -> list[list[float]]:
    return [[one.value - one.low for one in estimates], [one.high - one.value for one in estimates]]


def _moved(first: Mapping[str, float], last: Mapping[str, float], name: str) -> str:
    return f"{first[name]:.3g} → {last[name]:.3g}" if name in first else _NONE


def _percent(one: Estimate) -> str:
    return f"{100 * one.value:.1f}"


def _change(one: Estimate) -> str:
    interval = "" if math.isnan(one.low) else f" [{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
    return f"{100 * one.value:+.1f}{interval}"


def _share(one: Estimate | None) -> str:
    return _NONE if one is None or math.isnan(one.value) else f"{one.value:.3f}"
