"""What `sharpen audit-reward` shows: what was tried, what was judged wrongly, and examples of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sharpen.reports.tables import ruled
from sharpen.rewards.audit import Audit, Count, Finding

EXAMPLES = 3
"""Examples of each name."""
_WIDTH = 60


def audit_tables(found: Audit) -> Iterator[RenderableType]:
    """The tables of an audit, top to bottom; they fit 80 columns."""
    yield _counts("What must not be accepted", found.attacks, "accepted")
    yield _counts("What must be accepted: the right answer, plainly stated", found.honest, "rejected")
    for fault, title in (
        ("accepted", "Wrongly accepted"),
        ("rejected", "Wrongly rejected"),
        ("unsure", "Accepted, each for the other: equal, or not?"),
    ):
        if findings := found.of(fault):
            yield _examples(title, findings)
    yield Text(
        f"{found.problems} problems · judged by {', '.join(found.judging)} · accepted above {found.threshold:g} · "
        f"{found.accepted} wrongly accepted, {found.rejected} wrongly rejected",
        style="bold red" if found.accepted else "yellow" if found.rejected else "bold green",
    )


def _counts(title: str, counts: Mapping[str, Count], fault: str) -> Table:
    table = ruled(title)
    table.add_column("", overflow="fold")
    table.add_column("tried", justify="right")
    table.add_column(f"wrongly {fault}", justify="right")
    if any(count.unscorable for count in counts.values()):
        table.add_column("no reward", justify="right")
    for name, count in counts.items():
        faults = Text(str(count.faults), style="bold red" if count.faults else "dim")
        table.add_row(name, str(count.tried), faults, *([str(count.unscorable)] if len(table.columns) == 4 else []))
    return table


def _examples(title: str, findings: list[Finding]) -> Table:
    table = ruled(title)
    for heading in ("what", "problem", "right answer", "completion"):
        table.add_column(heading, overflow="fold")
    shown: dict[str, int] = {}
    for finding in findings:
        shown[finding.name] = shown.get(finding.name, 0) + 1
        if shown[finding.name] <= EXAMPLES:
            table.add_row(*map(Text, (finding.name, finding.problem_id, _short(finding.gold), _short(finding.completion))))
    hidden = sum(count - EXAMPLES for count in shown.values() if count > EXAMPLES)
    if hidden:
        table.caption = f"and {hidden} more: --json FILE has all"
        table.caption_justify = "left"
    return table


def _short(text: str) -> str:
    """The text on one line, control characters and what cannot be seen as escapes, in at most `_WIDTH` characters."""
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:_WIDTH])
    return visible if len(text) <= _WIDTH else f"{visible}… ({len(text):,} characters)"
