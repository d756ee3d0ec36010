"""What all settings of problem sources have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A table of a recipe: its keys are fixed, its values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
