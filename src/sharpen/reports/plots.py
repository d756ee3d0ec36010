"""What there is to plot of runs, as plain numbers: the page, the PNGs and the CSVs are all made from this."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.summary import Summary
from sharpen.reports import metrics
from sharpen.reports.behaviours import SMOOTH_FROM, panels, smooth
from sharpen.reports.run_view import Gamed, RunView

MOST = 400
"""Points of a line that a page draws; longer lines are means over as many spans of steps. The CSVs have every step."""

HELD_OUT = "Evaluations before training (step 0), on the way (evaluation.every) and after; 95 % intervals by the bootstrap over problems."
BEHAVIOURS = (
    "Completions of training by step; marks: held-out problems, at step 0 before training. 95 % intervals by Student's t over the groups "
    "of a step; none where all groups agree."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line, its points in the order of x.

    Attributes:
        label: what it is.
        x: steps, or K.
        y: values; NaN leaves a gap.
        low: lower ends of 95 % intervals, where there are any.
        high: upper ends.
        colour: its place in the palette.
        dash: its place among the kinds of strokes and marks, so that colour is not all that tells.
        marks: points alone, not joined.
        thin: drawn faintly: single steps below their running mean.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    colour: int = 0
    dash: int = 0
    marks: bool = False
    thin: bool = False


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Axes with lines.

    Attributes:
        key: a name for files, as `reward`.
        group: `pass`, `training` or `behaviours`.
        title: above it.
        unit: of y.
        axis: `step` or `K`; K is on a logarithmic axis.
        lines: what is drawn.
        note: what it is and how its intervals are made, in a sentence or two.
        floor: whether y begins at 0.
        band: a grey band that means no change, from −band to band.
    """

    key: str
    group: Literal["pass", "training", "behaviours"]
    title: str
    unit: str
    lines: Sequence[Line]
    axis: Literal["step", "K"] = "step"
    note: str = ""
    floor: bool = False
    band: float | None = field(default=None)

    def rows(self) -> Iterator[tuple[str, float, float, float | None, float | None]]:
        """Every point: line, x, y, low, high; thin lines are single steps."""
        for line in self.lines:
            ends = [(None, None)] * len(line.x) if line.low is None or line.high is None else list(zip(line.low, line.high, strict=True))
            name = f"{line.label} (single steps)" if line.thin else line.label
            for x, y, (low, high) in zip(line.x, line.y, ends, strict=True):
                yield name, x, y, low, high

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, shortened to what a page draws; None for what is unknown."""
        lines = [_shortened(line) for line in self.lines]
        return {
            "key": self.key, "group": self.group, "title": self.title, "unit": self.unit, "axis": self.axis, "note": self.note,
            "floor": self.floor, "band": self.band, "lines": lines, "short": any(len(line.x) > MOST for line in self.lines),
        }  # fmt: skip


def plots(views: Sequence[RunView], names: Sequence[str]) -> list[Plot]:
    """All plots of these runs, the first being the one reported on; names as `named_apart` gives them."""
    return [
        *_pass_plots(views, names), *_held_out(views, names), *_learned(views, names), *_training_plots(views, names),
        *_behaviour_plots(views, names),
    ]  # fmt: skip


def _pass_plots(views: Sequence[RunView], names: Sequence[str]) -> Iterator[Plot]:
    """Pass@K and Maj@K before and after, and their change; without a comparison, of what has been evaluated."""
    about = "The mean over held-out problems, with 95 % intervals by the bootstrap over problems."
    for measure, title in (("pass_at_k", "Pass@K"), ("maj_at_k", "Maj@K")):
        lines = []
        for i, (view, name) in enumerate(zip(views, names, strict=True)):
            for j, (when, summary) in enumerate(_summaries(view)):
                label = f"{name}, {when}" if len(views) > 1 else when
                lines.append(_curve(label, getattr(summary, measure), colour=2 * i + j if len(views) == 1 else i, dash=j))
        if lines:
            yield Plot(key=measure, group="pass", title=title, unit="%", lines=lines, axis="K", note=about, floor=True)
    changed = [(i, name, view.changes) for i, (view, name) in enumerate(zip(views, names, strict=True)) if view.changes is not None]
    lines = []
    for i, name, changes in changed:
        for j, (measure, title) in enumerate((("pass_at_k", "Pass@K"), ("maj_at_k", "Maj@K"))):
            label = f"{name}, {title}" if len(views) > 1 else title
            estimates: Mapping[int, Estimate] = getattr(changes.comparison.change, measure)
            lines.append(_curve(label, estimates, colour=2 + j if len(views) == 1 else i, dash=j))
    if changed:
        margin = 100 * changed[0][2].gap.margin
        note = (
            f"After − before, paired by problem, with 95 % intervals. Grey: ± {margin:g} points, the change of reach that counts as none."
        )
        yield Plot(
            key="change", group="pass", title="Change of Pass@K and Maj@K", unit="points", lines=lines, axis="K", note=note, band=margin
        )


def _summaries(view: RunView) -> Iterator[tuple[str, Summary]]:
    if view.changes is not None:
        yield "before", view.changes.comparison.before
        yield "after", view.changes.comparison.after
        return
    for step in sorted({min(view.records, default=0), max(view.records, default=0)} & set(view.records)):
        yield "before" if step == 0 else f"step {step}", view.records[step].summary


def _curve(label: str, by_k: Mapping[int, Estimate], *, colour: int, dash: int) -> Line:
    values, low, high = ([100 * getattr(one, part) for one in by_k.values()] for part in ("value", "low", "high"))
    return Line(label=label, x=list(by_k), y=values, low=low, high=high, colour=colour, dash=dash)


def _training_plots(views: Sequence[RunView], names: Sequence[str]) -> Iterator[Plot]:
    """A plot a metric; and times."""
    known = dict.fromkeys(name for view in views for one in view.metrics.values() for name in one)
    for metric in metrics.ordered(known):
        lines = []
        for i, (view, name) in enumerate(zip(views, names, strict=True)):
            if series := view.series(metric.source):
                values = [metric.of(value) for value in series.values()]
                lines.append(Line(label=name, x=list(series), y=values, colour=i, dash=i))
        if lines:
            yield Plot(
                key=metric.key, group="training", title=metric.title, unit=metric.unit, lines=lines, note=metric.note, floor=metric.floor
            )
    for key, title, unit in (("step", "Time of a step", "s"), ("rollout", "Time of sampling and grading", "s"),
                             ("training", "Time of the updates", "s"), ("tokens_per_second", "Speed of sampling", "tokens/s")):  # fmt: skip
        lines = [
            Line(label=name, x=list(view.seconds), y=[one.get(key, math.nan) for one in view.seconds.values()], colour=i, dash=i)
            for i, (view, name) in enumerate(zip(views, names, strict=True))
            if view.seconds
        ]
        if lines:
            yield Plot(key=f"time_{key}", group="training", title=title, unit=unit, lines=lines, floor=True)


def _learned(views: Sequence[RunView], names: Sequence[str]) -> Iterator[Plot]:
    """What a reward model says and what is right, of the same completions."""
    lines = []
    for i, (view, name) in enumerate(zip(views, names, strict=True)):
        gaps, right = view.series("reward_gap"), view.series("pass_rate")
        for j, label in enumerate(("the reward model's mean probability", "right by the rule")):
            told = f"{name}, {label}" if len(views) > 1 else label
            values = [100 * (right[step] + (gap if j == 0 else 0.0)) for step, gap in gaps.items() if step in right]
            if values:
                steps = [step for step in gaps if step in right]
                lines.append(Line(label=told, x=steps, y=values, colour=i if len(views) > 1 else j, dash=j))
                if j == 0 and view.gamed is not None and view.gamed[0] in steps:
                    lines.append(_gamed(view.gamed, values[steps.index(view.gamed[0])], name if len(views) > 1 else "", colour=i))
        if gaps and len(views) == 1:
            points = [100 * gap for gap in gaps.values()]
            lines.append(Line(label="the gap between the two, points", x=list(gaps), y=points, colour=2, dash=2))
    if lines:
        note = "Of the completions of training, by step. Where the two part, the policy has found what the reward model takes for right."
        yield Plot(key="learned_reward", group="training", title="Learned reward and rule", unit="%", lines=lines, note=note, floor=True)


def _gamed(gamed: Gamed, height: float, name: str, *, colour: int) -> Line:
    """A mark at the step after which the gap counted as open."""
    step, then = gamed
    done = {"warn": "warned", "stop": "stopped", "rule": "the rule from here on"}[then]
    label = f"gap open after step {step}: {done}"
    return Line(label=f"{name}, {label}" if name else label, x=[step], y=[height], marks=True, colour=colour, dash=1)


def _held_out(views: Sequence[RunView], names: Sequence[str]) -> Iterator[Plot]:
    """Pass@1 and the Pass@K of the largest K by step, where there are evaluations."""
    for first in (True, False):
        lines, wanted = [], set[int]()
        for i, (view, name) in enumerate(zip(views, names, strict=True)):
            by_step = {step: record.summary.pass_at_k for step, record in sorted(view.records.items())}
            if not by_step:
                continue
            k = (min if first else max)(next(iter(by_step.values())))
            found = {step: one[k] for step, one in by_step.items() if k in one}
            values, low, high = ([100 * getattr(one, part) for one in found.values()] for part in ("value", "low", "high"))
            wanted.add(k)
            lines.append(Line(label=name, x=list(found), y=values, low=low, high=high, colour=i, dash=i))
        if lines and (first or wanted != {1}):
            title = "By step: Pass@" + "/".join(str(k) for k in sorted(wanted))
            key = "held_out_first" if first else "held_out_most"
            yield Plot(key=key, group="pass", title=title, unit="%", lines=lines, note=HELD_OUT, floor=True)


def _behaviour_plots(views: Sequence[RunView], names: Sequence[str]) -> Iterator[Plot]:
    """The panels of `sharpen behaviours`, each run's lines with bands."""
    shown: dict[str, list[Line]] = {}
    looks: dict[str, tuple[str, str]] = {}
    for i, (view, name) in enumerate(zip(views, names, strict=True)):
        if view.behaviours is None:
            continue
        for title, factor, unit, lines in panels(view.behaviours):
            key = title.partition(" by ")[0]
            looks.setdefault(key, (title, unit))
            for j, (measure, of, label) in enumerate(lines):
                told = f"{name}, {label}" if len(views) > 1 else label
                found = _behaviour_lines(view, (measure, of), factor, told, colour=i if len(views) > 1 else j, dash=j)
                shown.setdefault(key, []).extend(found)
    for key, drawn in shown.items():
        title, unit = looks[key]
        name = "behaviour_" + "_".join(key.lower().replace(",", "").split())
        title = title[0].upper() + title[1:]
        yield Plot(key=name, group="behaviours", title=title, unit=unit, lines=drawn, floor=True, note=BEHAVIOURS)


def _behaviour_lines(view: RunView, line: tuple[str, str], factor: float, label: str, *, colour: int, dash: int) -> Iterator[Line]:
    assert view.behaviours is not None
    series, band = view.behaviours.series(*line), view.behaviours.bands(*line)
    if series:
        means = smooth(series, band)
        if len(series) >= SMOOTH_FROM:
            single = [factor * value for value, _ in series.values()]
            yield Line(label=label, x=list(series), y=single, thin=True, colour=colour, dash=dash)
        values, low, high = ([factor * one[k] for one in means.values()] for k in range(3))
        yield Line(label=label, x=list(means), y=values, low=low, high=high, colour=colour, dash=dash)
    held_out, ends = view.behaviours.series(*line, "held-out"), view.behaviours.bands(*line, "held-out")
    if held_out:
        values = [factor * value for value, _ in held_out.values()]
        low, high = ([factor * one[k] for one in ends.values()] for k in range(2))
        yield Line(label=f"{label}, held-out", x=list(held_out), y=values, low=low, high=high, marks=True, colour=colour, dash=dash)


def _shortened(line: Line) -> dict[str, Any]:
    """At most `MOST` points, each the mean of its span; numbers of five digits."""
    count = len(line.x)
    size = -(-count // MOST)
    out: dict[str, Any] = {
        "label": line.label, "colour": line.colour, "dash": line.dash, "marks": line.marks, "thin": line.thin
    }  # fmt: skip
    for name in ("x", "y", "low", "high"):
        values: Sequence[float] | None = getattr(line, name)
        out[name] = None if values is None else [_mean(values[i : i + size]) for i in range(0, count, size)]
    return out


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None
    return float(f"{sum(known) / len(known):.5g}")
