"""The parameters of the reward function, and of the step function, `model`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sharpen.errors import nearest

LEARNED = "model"
"""The function's name in a recipe."""


class LearnedSettings(BaseModel):
    """A process model that judges steps, `parameters` of `[rewards.steps]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(
        min_length=1, description="a reward model's folder, looked for in the working directory and beside the recipe; or a hub id"
    )
    batch_tokens: int = Field(4096, ge=1, description="token positions of one forward pass")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="of the weights")
    device: str = Field("auto", description="auto, cpu, cuda")
    keep: bool = Field(True, description="stay loaded between steps; false: load and unload it each step, where both models do not fit")

    def find(self, base: Path | None) -> str:
        """The folder where there is one, as a path that does not depend on the working directory; else the name as it is."""
        for place in (Path.cwd(), *([base] if base else [])):
            folder = place / Path(self.path).expanduser()
            if folder.is_dir():
                return str(folder.resolve())
        return self.path


class OutcomeSettings(LearnedSettings):
    """An outcome model that judges completions, `parameters` of `[[rewards.functions]]`."""

    output: Literal["logit", "probability"] = Field("logit", description="what the reward is: the logit, or its sigmoid")


def check(model: type[LearnedSettings], parameters: Mapping[str, Any]) -> None:
    """ValueError, with every fault, for parameters that are none of this."""
    try:
        model.model_validate(parameters)
    except ValidationError as error:
        known = list(model.model_fields)
        faults = []
        for detail in error.errors():
            name = str(detail["loc"][0])
            if detail["type"] == "extra_forbidden":
                faults.append(f"it has no parameter '{name}'.{nearest(name, known)}")
            elif detail["type"] == "missing":
                faults.append(f"it needs the parameter '{name}'")
            else:
                faults.append(f"{name}: {detail['msg']}, got {detail['input']!r}")
        raise ValueError(f"function 'model': {'; '.join(faults)}. It takes {', '.join(known)}") from None
