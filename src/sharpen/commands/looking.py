"""Commands that show what there is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sharpen.commands.options import show, writing


def inspect(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    step: Annotated[int | None, typer.Option(help="Of training; left out, the last one.")] = None,
    problem: Annotated[str | None, typer.Option(help="Only this problem's id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many completions.")] = 16,
) -> None:
    """See the completions of a training step, with their rewards."""
    from sharpen.reports.terminal import step_panels

    for part in step_panels(run, step=step, problem=problem, limit=limit):
        show(part)


def behaviours(
    run: Annotated[Path, typer.Argument(help="A run's folder, or one that `sharpen eval` wrote.")],
    base: Annotated[Path | None, typer.Option(help="An evaluation of the model before training; left out, the run's own.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the chains of thought, as en or zh; left out, the one the recipe names.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many completions a step have their text read, evenly spread.")] = 512,
    output: Annotated[Path | None, typer.Option(help="A folder for every figure (CSV) and a plot (PNG).")] = None,
) -> None:
    """See how completions changed: length, reflective words, languages, form, repetition, entropy, accuracy by level."""
    from sharpen.pipelines import behaviours as pipeline
    from sharpen.reports.behaviours import behaviour_tables, write
    from sharpen.tracking.display import watching

    with watching() as observer:
        found = pipeline.behaviours(run, base=base, language=language, limit=limit, observer=observer)
    for part in behaviour_tables(found, title=f"Completions of {run}"):
        show(part)
    if output is not None:
        with writing(output):
            show(f"\nFigures and plot: {', '.join(str(path) for path in write(found, output))}")


def diagnose(run: Annotated[Path, typer.Argument(help="A run's folder; it may still be training.")]) -> None:
    """Say what is wrong or wasteful in a run, with the evidence; docs/diagnosis.md has the rules."""
    from sharpen.pipelines import diagnose as pipeline
    from sharpen.reports.diagnosis import diagnosis_lines
    from sharpen.tracking.display import watching

    with watching() as observer:
        found = pipeline.diagnose(run, observer=observer)
    for part in diagnosis_lines(found, run):
        show(part)


def methods(name: Annotated[str | None, typer.Argument(help="Show this one's equation and settings.")] = None) -> None:
    """List the methods: data source × reward × gradient coefficient."""
    from sharpen.reports.methods import method_page, methods_tables

    if name is not None:
        show(method_page(name))
        return
    from rich.console import Console

    for table in methods_tables(Console().width):
        show(table)


def recipes(keys: Annotated[bool, typer.Option("--keys", help="Show every key of a recipe, with its default.")] = False) -> None:
    """List the recipes that come with sharpen, or the keys that a recipe may have."""
    if keys:
        from sharpen.reports.keys import keys_tables

        for table in keys_tables():
            show(table)
        return
    from sharpen.bundled import recipes_table

    show(recipes_table())


def doctor() -> None:
    """Show what is installed, which devices there are, and what is in the cache."""
    from sharpen.reports.doctor import doctor_tables

    for table in doctor_tables():
        show(table)
