"""What a command shows in the terminal: the end of a run, and completions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sharpen.errors import RunError
from sharpen.evaluation.render import comparison_table
from sharpen.reports.changes import verdict_lines
from sharpen.tracking import completions
from sharpen.training.memory import human
from sharpen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from sharpen.evaluation.evaluate import Evaluation
    from sharpen.pipelines.train import RunResult

GRADES = {True: ("right", "green"), False: ("wrong", "red")}


def run_report(result: RunResult) -> Iterator[RenderableType]:
    """The end of a run: what changed on the held-out problems, and where to look next."""
    if result.changes is not None:
        yield comparison_table(result.changes.comparison, title="Held-out problems, before and after training")
        yield Text("")
        yield from verdict_lines(result.changes)
        yield Text("")
    folder = result.folder
    table = Table(title="Where to look next", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(style="cyan", overflow="fold")
    table.add_row("the trained model", str(folder.model))
    table.add_row("ask it something", f'sharpen sample {folder.model} --prompt "What is 7 * 8?"')
    table.add_row("see completions", f"sharpen inspect {folder.path} --step 1")
    if result.changes is not None:
        table.add_row("all that changed", f"sharpen compare {folder.path}")
    table.add_row("every metric", str(folder.events))
    yield table
    yield Text(f"Peak memory {human(result.peak_memory)}, expected {human(result.memory.peak)}", style="dim")


def completion_panels(found: Evaluation, *, graded: bool) -> Iterator[Panel]:
    """Each completion of an evaluation in a panel."""
    for group, correct, answers in zip(found.groups, found.scores.correct.tolist(), found.scores.answers, strict=True):
        for i, completion in enumerate(group.completions):
            notes = [f"{len(completion.tokens)} tokens", completion.finish_reason, f"answer {answers[i]}"]
            yield _panel(completion.text, notes, correct[i] if graded else None)


def step_panels(run: Path, *, step: int | None, problem: str | None, limit: int) -> Iterator[RenderableType]:
    """The completions of a training step, best rewards first within each group."""
    folder = RunFolder(run)
    if not folder.completions.is_dir():
        raise RunError(f"run {run}: there are no completions here.", fix="Give the folder of a run, such as runs/quickstart.")
    steps = sorted(int(path.stem.removeprefix("step-")) for path in folder.completions.glob("step-*.parquet"))
    step = steps[-1] if step is None and steps else step or 1
    rows = completions.read(completions.path_of(folder.completions, step))
    rows = [row for row in rows if problem is None or row["problem_id"] == problem]
    if not rows:
        raise RunError(f"run {run}, step {step}: no completion of problem {problem!r}.", fix="Leave out --problem to see which there are.")
    yield Text(f"Step {step} of {run}: {len(rows)} completions, mean reward {_mean(rows):.3f}", style="bold")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    shown = 0
    for members in groups.values():
        if shown >= limit:
            break
        best = sorted(members, key=lambda row: -(row["reward"] if row["reward"] is not None else float("-inf")))[: limit - shown]
        shown += len(best)
        yield Group(
            Text(f"\n{members[0]['prompt']}  →  {members[0]['ground_truth']}", style="bold cyan"), *[_row_panel(row) for row in best]
        )
    if shown < len(rows):
        yield Text(f"{len(rows) - shown} more: --limit {len(rows)} shows all", style="dim")


def _row_panel(row: dict[str, Any]) -> Panel:
    parts = [f"{name.removeprefix('reward/')} {value:g}" for name, value in row.items() if name.startswith("reward/") and value is not None]
    reward = "unscorable" if row["reward"] is None else f"reward {row['reward']:g}"
    notes = [f"#{row['index']}", reward, *(parts if len(parts) > 1 else []), f"{row['length']} tokens", row["finish_reason"]]
    return _panel(row["completion"], notes, row["correct"])


def _panel(text: str, notes: list[str], correct: bool | None) -> Panel:
    word, colour = GRADES[correct] if correct is not None else ("", "white")
    title = Text(" · ".join([word, *notes] if word else notes), style=colour)
    return Panel(Text(text), title=title, title_align="left", border_style=colour)


def _mean(rows: list[dict[str, Any]]) -> float:
    known = [row["reward"] for row in rows if row["reward"] is not None]
    return sum(known) / len(known) if known else float("nan")
