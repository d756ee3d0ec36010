"""The recipes that come with sharpen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sharpen.errors import RecipeError, nearest

if TYPE_CHECKING:
    from rich.table import Table


def folder() -> Path:
    """Where they lie: inside an installed package, or at the root of a source tree."""
    here = Path(__file__).parent
    installed = here / "_recipes"
    return installed if installed.is_dir() else here.parents[1] / "recipes"


def names() -> list[str]:
    """Their names, as `quickstart`."""
    return sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob("*.toml"))


def find_recipe(path: Path) -> Path:
    """The file itself where it exists, else the bundled recipe of that name; RecipeError when there is neither."""
    if path.is_file():
        return path
    bundled = folder() / path.with_suffix(".toml")
    if not path.is_absolute() and bundled.is_file():
        return bundled
    raise RecipeError(
        f"recipe {path}: no such file, and no recipe of that name comes with sharpen.{nearest(path.with_suffix('').as_posix(), names())}",
        fix="Run `sharpen recipes` to see those that come with sharpen.",
    )


def opening(path: Path) -> str:
    """What a recipe says of itself: the comment lines at its top, as one paragraph."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    text = " ".join(lines)
    return text.partition(". ")[0].rstrip(".") + "." if text else ""


def recipes_table() -> Table:
    """Name and purpose of each, as a table."""
    from rich.table import Table

    table = Table(title="Recipes", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("what it does")
    for name in names():
        table.add_row(name, opening(folder() / f"{name}.toml"))
    table.caption = f"Files: {folder()} · Run one: sharpen train NAME"
    table.caption_justify = "left"
    return table
