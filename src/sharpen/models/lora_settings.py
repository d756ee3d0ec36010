"""The LoRA section of a recipe."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

ALL_LINEAR = "all-linear"


class LoraSettings(BaseModel):
    """Train low-rank adapters and not the weights themselves: W + s·B·A, with s = alpha / rank."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(16, ge=1, description="r, the rank of an adapter")
    alpha: float = Field(32.0, gt=0.0, description="α: an adapter is scaled by α / r")
    use_rslora: bool = Field(False, description="scale by α / √r instead (rsLoRA)")
    target_modules: str | list[str] = Field(
        ALL_LINEAR, description='which layers get one: "all-linear" (all but the head), or a list of names such as ["q_proj", "v_proj"]'
    )
    dropout: float = Field(0.0, description="0 only: with dropout the old and the new log-probabilities would be of different networks")

    @field_validator("target_modules")
    @classmethod
    def _targets(cls, value: str | list[str]) -> str | list[str]:
        if isinstance(value, str) and value != ALL_LINEAR:
            raise ValueError(f'expected "{ALL_LINEAR}" or a list of names such as ["q_proj", "v_proj"], got "{value}"')
        if not value:
            raise ValueError("expected at least one name, got an empty list")
        return value

    @field_validator("dropout")
    @classmethod
    def _dropout(cls, value: float) -> float:
        if value != 0:
            raise ValueError(f"training needs adapters without dropout (0), got {value}: a ratio would compare two random networks")
        return value
