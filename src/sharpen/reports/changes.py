"""What a comparison shows: the verdict, problems, levels; and its curves as a plot and a table of numbers."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sharpen.evaluation.changes import Changes
from sharpen.evaluation.intervals import Estimate
from sharpen.evaluation.problem_changes import FALSE_SHARE, ProblemChange, What, count
from sharpen.evaluation.render import comparison_table
from sharpen.evaluation.summary import Comparison
from sharpen.evaluation.verdict import Verdict, rule
from sharpen.reports.tables import ruled

BEFORE, AFTER = "#0072b2", "#d55e00"
STYLES = {"sharpened": "bold green", "extended": "bold cyan", "both": "bold magenta", "no clear change": "bold yellow"}
SHOWN = 10
KINDS: tuple[What, ...] = ("newly solved", "newly lost", "better", "worse")


def change_report(found: Changes, *, title: str = "Before and after training") -> Iterator[RenderableType]:
    """All of a comparison for the terminal."""
    yield comparison_table(found.comparison, title=title)
    yield Text("")
    yield from verdict_lines(found, with_rule=True)
    yield Text("")
    yield from _problems(found)
    for name, parts in found.breakdown.items():
        yield Text("")
        yield _breakdown(name, parts)


def verdict_lines(found: Changes, *, with_rule: bool = False) -> Iterator[Text]:
    """The word, its reasons, where the gap closes and how many problems changed; and the rule where it is asked for."""
    for difference in found.differences:
        yield Text(f"Careful: the evaluations differ in their settings: {difference}.", style="bold red")
    if found.verdict is None:
        yield Text("Verdict: none, for it takes two problems at least, and a K above 1.")
    else:
        yield _word(found.verdict)
        for reason in found.verdict.reasons:
            yield Text(f"  {reason}")
    yield Text(f"  {found.gap}")
    yield Text(f"  {_counts(found.problems)}")
    if with_rule and found.verdict is not None:
        yield Text("The rule, by 95 % intervals (docs/verdict.md has its error rates):", style="dim")
        for line in rule(found.verdict.k, found.verdict.margin):
            yield Text(f"  {line}", style="dim")


def _word(verdict: Verdict) -> Text:
    return Text.assemble("Verdict: ", (verdict.word, STYLES[verdict.word]))


def _counts(problems: Sequence[ProblemChange]) -> str:
    counts = ", ".join(f"{count(problems, kind)} {kind}" for kind in KINDS)
    return f"Of {len(problems)} problems, beyond chance: {counts}."


def _problems(found: Changes) -> Iterator[RenderableType]:
    """The problems that changed by more than chance, the surest first."""
    changed = sorted((one for one in found.problems if one.what in ("newly solved", "newly lost")), key=lambda one: (one.p, one.problem_id))
    if not changed:
        yield Text("No problem is newly solved or newly lost beyond chance.")
        return
    table = ruled("Newly solved and newly lost")
    table.caption = f"Fisher's exact test, Benjamini-Hochberg over {len(found.problems)} problems: at most {FALSE_SHARE:.0%} by chance"
    table.caption_justify = "left"
    table.add_column("problem", style="cyan", overflow="fold")
    table.add_column("")
    for heading in ("right before", "after", "p, corrected"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in changed[:SHOWN]:
        table.add_row(one.problem_id, one.what, f"{one.before}/{one.samples}", f"{one.after}/{one.samples}", f"{one.adjusted:.2g}")
    yield table
    if len(changed) > SHOWN:
        yield Text(f"{len(changed) - SHOWN} more are in comparison.json (--output)", style="dim")


def _breakdown(name: str, parts: Mapping[str, Comparison]) -> Table:
    """Pass@1 and Pass@K of the largest K by level or subject."""
    table = ruled(f"By {name}, %")
    table.add_column(name, style="cyan")
    table.add_column("problems", justify="right")
    largest = max(next(iter(parts.values())).change.pass_at_k)
    for k in dict.fromkeys((1, largest)):
        for heading in (f"Pass@{k} before", "after", "change"):
            table.add_column(heading, justify="right", no_wrap=True)
    for value, one in parts.items():
        cells = []
        for k in dict.fromkeys((1, largest)):
            if k not in one.change.pass_at_k:
                continue
            moved = one.change.pass_at_k[k]
            cells += [f"{100 * one.before.pass_at_k[k].value:.1f}", f"{100 * one.after.pass_at_k[k].value:.1f}", _signed(moved)]
        table.add_row(value, str(one.before.problems), *cells)
    return table


def _signed(moved: Estimate) -> str:
    if moved.low != moved.low:
        return f"{100 * moved.value + 0.0:+.1f}"
    return f"{100 * moved.value + 0.0:+.1f} [{100 * moved.low:+.1f}, {100 * moved.high:+.1f}]"


def write(found: Changes, folder: Path) -> list[Path]:
    """Write `comparison.json`, `curves.csv` and `curves.png` into a folder, each whole or not at all; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / "comparison.writing"
    temporary.write_text(json.dumps(found.to_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, folder / "comparison.json")
    temporary = folder / "curves.writing"
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["measure", "k", "model", "value", "low", "high"])
        writer.writerows(rows(found.comparison))
    os.replace(temporary, folder / "curves.csv")
    return [folder / "comparison.json", folder / "curves.csv", plot(found, folder / "curves.png")]


def rows(comparison: Comparison) -> Iterator[tuple[str, int, str, float, float, float]]:
    """The curves as rows: measure, K, `before`, `after` or `change`, value and interval."""
    for measure in ("pass_at_k", "maj_at_k"):
        for model in ("before", "after", "change"):
            for k, estimate in getattr(getattr(comparison, model), measure).items():
                yield measure, k, model, estimate.value, estimate.low, estimate.high


def plot(found: Changes, path: Path) -> Path:
    """Draw Pass@K and Maj@K over K, before and after, with bands of their 95 % intervals, and the change of Pass@K; write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    comparison = found.comparison
    figure, axes = pyplot.subplots(1, 3, figsize=(14.4, 4.6), layout="constrained")
    for axis, measure, title in ((axes[0], "pass_at_k", "Pass@K"), (axes[1], "maj_at_k", "Maj@K")):
        for label, figures, colour, mark in (("before", comparison.before, BEFORE, "o"), ("after", comparison.after, AFTER, "s")):
            _draw(axis, getattr(figures, measure), colour, mark, label)
        axis.set(title=title, ylim=(-2, 102), ylabel="%")
        axis.legend(frameon=False, loc="lower right")
    _draw(axes[2], comparison.change.pass_at_k, "#444444", "d", "Pass@K")
    _draw(axes[2], comparison.change.maj_at_k, "#009e73", "^", "Maj@K")
    margin = 100 * found.gap.margin
    axes[2].axhspan(-margin, margin, color="0.85", zorder=0, label="margin")
    axes[2].axhline(0, color="0.4", linewidth=0.8)
    axes[2].set(title="change, after − before", ylabel="points")
    axes[2].legend(frameon=False)
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(comparison.before.pass_at_k), [str(k) for k in comparison.before.pass_at_k])
        axis.minorticks_off()
        axis.set_xlabel("K")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    word = "none" if found.verdict is None else found.verdict.word
    figure.suptitle(
        f"verdict: {word} · {comparison.before.problems} problems × {comparison.before.samples} samples, bands: 95 % intervals", fontsize=10
    )
    temporary = path.with_suffix(".writing")
    figure.savefig(temporary, dpi=130, format="png", metadata={"Software": None})
    pyplot.close(figure)
    os.replace(temporary, path)
    return path


def _draw(axis: Any, by_k: Mapping[int, Estimate], colour: str, mark: str, label: str) -> None:
    ks = list(by_k)
    values, lows, highs = ([100 * getattr(one, name) for one in by_k.values()] for name in ("value", "low", "high"))
    axis.plot(ks, values, color=colour, marker=mark, markersize=4, label=label)
    axis.fill_between(ks, lows, highs, color=colour, alpha=0.15, linewidth=0)
