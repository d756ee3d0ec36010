"""The look of a table with a title, ruled lines and no frame."""

from __future__ import annotations

from rich import box
from rich.table import Table


def ruled(title: str) -> Table:
    """An empty table."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        min_width=min(80, len(title)),
        box=box.HORIZONTALS,
        show_edge=False,
        pad_edge=False,
    )
