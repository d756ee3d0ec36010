"""What commands share: options, and how they print, stop and fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Template = Annotated[str, typer.Option(help="How a problem becomes a prompt: chat, r1_zero or plain.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Limit of a completion, in tokens.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Of sampling; 0 is greedy.")]
TopP = Annotated[float, typer.Option(min=0.0, max=1.0, help="Nucleus share.")]
Model = Annotated[str, typer.Argument(help='"embedded", "tiny", a local folder, or a hub id.')]


@contextmanager
def interruptible(what: str) -> Iterator[None]:
    """Ctrl-C ends the command with a word on what was kept, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {what}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """A folder that cannot be written is the user's to mend."""
    from sharpen.errors import RunError

    try:
        yield
    except OSError as error:
        raise RunError(f"output {output}: cannot be written: {error}.", fix="Choose a folder that you may write, by --output.") from error


def template_of(name: str) -> Any:
    """The template of this name."""
    from pydantic import ValidationError

    from sharpen.errors import RecipeError
    from sharpen.problems.templates import Template

    try:
        return Template.model_validate({"name": name})
    except ValidationError as error:
        raise RecipeError(f"template '{name}': expected chat, r1_zero or plain.", fix="Give one of these with --template.") from error


def one_of(option: str, value: str, known: Sequence[str]) -> None:
    """Refuse a value that an option does not have."""
    from sharpen.errors import RecipeError, nearest

    if value not in known:
        raise RecipeError(f"--{option} '{value}': expected {', '.join(known)}.{nearest(value, known)}")


def ks_of(text: str | None, samples: int) -> list[int]:
    """The K of `1,4,16`; left out, the powers of 2 up to the samples."""
    from sharpen.errors import RecipeError

    if text is None:
        return [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if k <= samples]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"--k '{text}': expected numbers with commas between, as 1,4,16.") from None


def show(what: Any) -> None:
    """Print what rich can render."""
    from rich.console import Console

    Console().print(what)
