"""The command line: the commands by their names, and what goes wrong told without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from sharpen.commands import looking, measuring, training
from sharpen.errors import SharpenError

app = typer.Typer(
    name="sharpen",
    help="Post-train reasoning language models with verifiable rewards, and see what the training really changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(training.train)
app.command("eval")(measuring.evaluate)
app.command()(measuring.compare)
app.command()(measuring.sample)
app.command()(measuring.search)
app.command()(looking.inspect)
app.command()(looking.behaviours)
app.command()(looking.diagnose)
app.command()(looking.report)
app.command()(looking.watch)
app.command("audit-reward")(measuring.audit_reward)
app.command()(measuring.grade)
app.command("train-reward-model")(training.train_reward_model)
app.command()(training.iterate)
app.command("make-tiny")(training.make_tiny)
app.command("post-train")(training.post_train)
app.command("label-steps")(training.label_steps)
app.command("compare-methods")(training.compare_methods)
app.command()(looking.methods)
app.command()(looking.recipes)
app.command()(looking.doctor)


def _version(show: bool) -> None:
    if show:
        from sharpen import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Options before any command."""


def main() -> None:
    """The entry point: a `SharpenError` is told without a traceback, with exit code 2."""
    # Read when torch is first imported. Threads that spin for long while they wait for one another lose tenfold as soon as another
    # process wants one of the cores; those that never spin lose a quarter on their own.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    with _told():
        app()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SharpenError as error:
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True, soft_wrap=True).print(Text("Error: ", style="bold red") + Text(str(error), style="default"), highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
