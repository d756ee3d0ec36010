"""A diagnosis for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from sharpen.evaluation.diagnosis import RULES
from sharpen.pipelines.diagnose import Diagnosis


def diagnosis_lines(found: Diagnosis, run: Path) -> Iterator[RenderableType]:
    """Each finding with its evidence and what to do, then what could not be looked at."""
    count = len(found.findings)
    steps = f"{found.steps} step{'s' if found.steps > 1 else ''} of {run}"
    if count:
        yield Text(f"{count} finding{'s' if count > 1 else ''} in {steps} (docs/diagnosis.md explains each):", style="bold")
    else:
        yield Text(f"Nothing found in {steps}: none of {len(RULES)} rules has anything to say.", style="bold green")
    for finding in found.findings:
        yield Text("")
        yield Text(finding.title, style="bold yellow") + Text(f"  [{finding.rule}]", style="not bold dim")
        for line in finding.evidence:
            yield Padding(Text(line), (0, 0, 0, 2))
        yield Padding(Text(f"→ {finding.advice}", style="cyan"), (0, 0, 0, 2))
    if found.notes:
        yield Text("")
    for note in found.notes:
        yield Text(f"note: {note}", style="dim")
