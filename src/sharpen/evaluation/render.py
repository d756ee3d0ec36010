"""Tables for a terminal of 80 columns: one model, and before and after training. Shares are shown in per cent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeVar

from rich import box
from rich.table import Table
from rich.text import Text

from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.summary import Comparison, Figures, Summary

T = TypeVar("T")
Kind = Literal["share", "length"]

BAR = 36
"""Characters of the bar that shows a share and its interval."""

UNKNOWN = "–"


def comparison_table(comparison: Comparison, *, title: str = "Before and after training") -> Table:
    """The before/after table: value and 95 % interval before, after, and of the change; `*` where the change's excludes 0.

    Print it with `rich.console.Console().print`. It fits 80 columns.
    """
    before, after = comparison.before, comparison.after
    table = _table(title, _caption(before, after) + "\n* the change's interval (paired by problem) excludes 0")
    table.add_column("", no_wrap=True)
    for name in ("before", "after", "change  "):
        table.add_column(name, justify="right", no_wrap=True)
    thousands = _in_thousands(before, after)
    rows = zip(_rows(before, thousands), _rows(after), _rows(comparison.change), strict=True)
    for (label, was, kind, last), (_, now, _, _), (_, change, _, _) in rows:
        scale = _scale(kind, thousands)
        moved = "dim" if not change.excludes_zero else "" if kind == "length" else "green" if change.value > 0 else "red"
        mark = (" *", "bold") if change.excludes_zero else "  "
        shown = Text.assemble(_cell(change, scale, signed=True, style=moved), mark)
        table.add_row(label, _cell(was, scale), _cell(now, scale), shown, end_section=last)
    return table


def summary_table(summary: Summary, *, title: str = "Evaluation") -> Table:
    """One model's table: each value with its 95 % interval, and a bar from 0 to 100 % that shows both."""
    table = _table(title, _caption(summary))
    table.add_column("", no_wrap=True)
    table.add_column("value [95 % interval]", justify="right", no_wrap=True)
    table.add_column(f"0{'100 %':>{BAR - 1}}", no_wrap=True)
    thousands = _in_thousands(summary)
    for label, estimate, kind, last in _rows(summary, thousands):
        bar = _bar(estimate) if kind == "share" else ""
        table.add_row(label, _cell(estimate, _scale(kind, thousands)), bar, end_section=last)
    return table


def _table(title: str, caption: str) -> Table:
    return Table(
        title=title, title_style="bold", title_justify="left", caption=caption, caption_style="dim", caption_justify="left",
        box=box.HORIZONTALS, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip


def _rows(figures: Figures[T], thousands: bool = False) -> Iterator[tuple[str, T, Kind, bool]]:
    """Label, quantity, kind, and whether a rule follows. Maj@1 is Pass@1 and not repeated."""
    for label, by_k in (("Pass@", figures.pass_at_k), ("Maj@", figures.maj_at_k)):
        for k, quantity in by_k.items():
            if (label, k) != ("Maj@", 1):
                yield f"{label}{k}", quantity, "share", k == max(by_k)
    yield "finished", figures.finished, "share", False
    yield "right if finished", figures.right_given_finished, "share", False
    yield "mean length, k" if thousands else "mean length", figures.mean_length, "length", False


def _in_thousands(*summaries: Summary) -> bool:
    return any(summary.mean_length.value >= 9999.5 for summary in summaries)


def _scale(kind: Kind, thousands: bool) -> float:
    return 100 if kind == "share" else 0.001 if thousands else 1


def _number(value: float, *, signed: bool) -> str:
    """At most four digits: `8.5`, `99.9`, `100`, `1234`."""
    if math.isnan(value):
        return UNKNOWN
    digits = 1 if abs(value) < 99.95 else 0
    return f"{round(value, digits) + 0.0:{'+' if signed else ''}.{digits}f}"  # + 0.0 turns −0.0 into 0.0


def _cell(estimate: Estimate, scale: float, *, signed: bool = False, style: str = "") -> Text:
    """`83.9 [77.1, 89.6]`, the interval dimmed; without it where it is unknown."""
    value, low, high = (_number(scale * number, signed=signed) for number in (estimate.value, estimate.low, estimate.high))
    interval = "" if UNKNOWN in (low, high) else f" [{low}, {high}]"
    return Text.assemble((value, f"bold {style}".strip()), (interval, "dim"))


def _bar(estimate: Estimate) -> Text:
    """A share and its interval on a line from 0 to 1: `··━━●━━····`."""

    def place(share: float) -> int:
        return min(BAR - 1, int(share * BAR))

    bar = [("·", "dim")] * BAR
    if not math.isnan(estimate.low):
        for spot in range(place(estimate.low), place(estimate.high) + 1):
            bar[spot] = ("━", "cyan")
    if not math.isnan(estimate.value):
        bar[place(estimate.value)] = ("●", "bold cyan")
    return Text.assemble(*bar)


def _caption(*summaries: Summary) -> str:
    """How many problems and samples the numbers are from, and which problems are short."""
    first = summaries[0]
    lines = [f"{first.problems} problems × {first.samples} samples · shares in %, length in tokens · 95 % intervals"]
    short = {name: count for summary in summaries for name, count in summary.short.items()}
    if short:
        some = ", ".join(f"{name} ({count})" for name, count in list(short.items())[:3])
        lines.append(f"{len(short)} short of {first.samples} samples and left out: {some}{', …' if len(short) > 3 else ''}")
    return "\n".join(lines)
