"""What `sharpen grade` shows: how many answers are right, and how the verdicts agree with labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from sharpen.grading.table import Grades
from sharpen.reports.tables import ruled

OUTCOMES = ("right", "wrong", "unscorable")
_STYLES = {"right": "green", "wrong": "red", "unscorable": "yellow"}
_WIDTH = 60


def grade_tables(found: Grades, *, file: Path) -> Iterator[RenderableType]:
    """The tables of a graded file, top to bottom."""
    table = ruled(f"{found.total:,} rows of {file.name}")
    table.add_column("")
    for heading in ("rows", "%"):
        table.add_column(heading, justify="right")
    for outcome in OUTCOMES:
        count = found.verdicts[outcome]
        table.add_row(Text(outcome, style=_STYLES[outcome]), f"{count:,}", f"{100 * count / found.total:.1f}")
    yield table
    if found.agreement is None:
        return
    confusion = ruled(f"Labels against verdicts: {100 * found.agreement:.2f} % agree")
    confusion.add_column("label")
    for outcome in OUTCOMES:
        confusion.add_column(outcome, justify="right")
    for label in OUTCOMES[:2]:
        cells = [(found.confusion[label, outcome], outcome) for outcome in OUTCOMES]
        confusion.add_row(label, *(Text(f"{n:,}", style="green" if outcome == label else "red" if n else "dim") for n, outcome in cells))
    yield confusion
    if found.differing:
        rows = ruled(f"The first {len(found.differing)} rows that differ from their label")
        for heading in ("row", "label", "gold", "extracted", "reason"):
            rows.add_column(heading, overflow="fold")
        for item, verdict in found.differing:
            place = item.place.rpartition("/")[2]
            rows.add_row(
                *(Text(str(cell)[:_WIDTH]) for cell in (place, item.label, item.problem.answer, verdict.extracted or "–", verdict.reason))
            )
        yield rows
