"""What a labelling of steps came to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from sharpen.pipelines.label_steps import Labelling


def labelling_table(found: Labelling) -> Table:
    """Its counts, and what it took."""
    table = Table(title=f"Labels: {found.path}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("completions", f"{found.completions:,}")
    table.add_row("steps, of which labelled", f"{found.steps:,}, {found.labelled:,}")
    table.add_row("mean label", "none" if math.isnan(found.right) else f"{found.right:.3f}")
    cost = found.cost
    if cost.steps:
        table.add_row("steps completed, continuations", f"{cost.steps:,}, {cost.rollouts:,}")
        table.add_row("tokens read (were no beginning shared)", f"{cost.read:,} ({cost.unshared:,})")
        table.add_row("tokens written", f"{cost.written:,}")
        table.add_row("seconds of completing and judging", f"{cost.seconds:.1f}")
    return table
