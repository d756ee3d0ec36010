"""Every key of a recipe, from the settings themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.table import Table

from sharpen.recipe import Recipe


def keys_tables() -> Iterator[Table]:
    """A table for each section: key, default, meaning. Sections that have kinds (a source of problems) come once for each kind."""
    sections: dict[type[BaseModel], list[str]] = {}
    _collect(Recipe, "", sections)
    for model, paths in sections.items():
        plain = [name for name, field in model.model_fields.items() if not _models(field.annotation)]
        if plain:
            yield _table(paths, model, plain)


def _collect(model: type[BaseModel], path: str, sections: dict[type[BaseModel], list[str]]) -> None:
    """Every model below this one, with the paths at which it stands."""
    sections.setdefault(model, []).append(path)
    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            _collect(inner, f"{path}.{name}".lstrip("."), sections)


def _table(paths: list[str], model: type[BaseModel], names: list[str]) -> Table:
    kind = model.model_fields["source"].default if "source" in model.model_fields else None
    title = (" and ".join(f"[{path}]" for path in paths) if paths != [""] else "At the top") + (f' with source = "{kind}"' if kind else "")
    table = Table(title=title.replace("[", "\\["), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("key", style="cyan", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    for name in names:
        field = model.model_fields[name]
        table.add_row(name, _default(field).replace("[", "\\["), (field.description or "").replace("[", "\\["))
    return table


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "needed"
    return (
        "–" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
