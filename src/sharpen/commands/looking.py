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


def report(
    run: Annotated[Path, typer.Argument(help="A run's folder; it may still be training.")],
    others: Annotated[list[Path] | None, typer.Argument(help="Runs to show beside it.", metavar="[OTHER]...")] = None,
    output: Annotated[Path | None, typer.Option(help="The HTML file; left out, report.html in the run's folder.")] = None,
    plots: Annotated[
        bool, typer.Option("--plots/--no-plots", help="Every plot as PNG and CSV too, in report/ beside the HTML file.")
    ] = True,
) -> None:
    """Write all of a run as one HTML file that asks nothing of any network: verdict, curves, diagnosis, completions. See docs/report.md."""
    from sharpen.reports import figures, html
    from sharpen.tracking.display import watching

    target = run / "report.html" if output is None else output
    with watching() as observer:
        page = html.Maker(run, others or [], observer=observer).make()
    with writing(target):
        html.write(page, target)
        if plots:
            figures.write(page.plots, target.parent / "report")
    show(f"Report: {target} ({len(page.html.encode()) / 1e6:.1f} MB, {page.shown.shown:,} of {page.shown.of:,} completions)")
    if plots:
        show(f"Plots as PNG and CSV: {target.parent / 'report'}")


def watch(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    others: Annotated[list[Path] | None, typer.Argument(help="Runs to show beside it.", metavar="[OTHER]...")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0 picks a free one.")] = 8700,
) -> None:
    """Serve the report of a run while it trains, on this machine only; new steps appear by themselves. Ctrl-C ends it."""
    from sharpen.reports.live import Server, Watched

    watched = Watched(run, others or [])
    watched.page()  # a folder that is no run is told before anything is served
    with Server(watched, port) as server:
        typer.echo(f"Watching {run}: {server.url}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Stopped.")


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
