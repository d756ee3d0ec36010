"""Is a learned reward being gamed? Beside it stands the rule on the same completions, and the gap between the two says so.

gap = mean over completions of (the probability that the reward model gives − 1 where the rule says right, else 0)

A calibrated model begins near 0. As the policy finds what the model takes for right and is not, the gap opens (reward hacking, DeepSeek-R1,
arXiv:2501.12948). It is compared with how it began, so a model that is off from the start opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

Then = Literal["warn", "stop", "rule"]
METRIC = "reward_gap"
"""Of a step, in its metrics."""
RULE = "accuracy"
"""The part that a run falls back to."""


class GamingSettings(BaseModel):
    """When a learned reward counts as gamed and what is done then, `[rewards.gaming]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gap: float = Field(0.15, gt=0.0, lt=1.0, description="how far the mean gap of the last `window` steps may lie above that of the first")
    window: int = Field(5, ge=1, description="steps")
    then: Then = Field(
        "warn", description="say so; end training after that step; or go on by the rule: the part `accuracy`, with weight 1, alone"
    )


def gap(values: Tensor, correct: Tensor, output: Literal["logit", "probability"]) -> float | None:
    """The gap of a step.

    Args:
        values: of the reward model, NaN where it gave none, any shape.
        correct: bool, the rule's verdicts, of the same shape.
        output: what the values are.

    Returns:
        Between −1 and 1; None where no value is given.
    """
    known = ~values.isnan()
    if not bool(known.any()):
        return None
    probability = values[known].double()
    if output == "logit":
        probability = probability.sigmoid()
    return float((probability - correct[known].double()).mean())


def opened(gaps: Sequence[float], settings: GamingSettings) -> int | None:
    """The first step, from 1, at which the mean of the last `window` gaps is more than `gap` above that of the first `window`.

    Args:
        gaps: of steps 1, 2, ...; the first window and the last have no step in common.
        settings: the two numbers.
    """
    size = settings.window
    if len(gaps) < 2 * size:
        return None
    series = torch.tensor(gaps, dtype=torch.float64)
    means = series.unfold(0, size, 1).mean(dim=1)  # of steps 1 to size, 2 to size + 1, ...
    above = (means[size:] - means[0] > settings.gap).nonzero()
    return None if len(above) == 0 else int(above[0]) + 2 * size


def opened_at(gaps: Mapping[int, float], settings: GamingSettings) -> int | None:
    """The step at which the gap opened.

    Args:
        gaps: by step, of those whose reward was learned; steps without a gap are left out, and windows are of the others.
        settings: the two numbers.
    """
    steps = sorted(gaps)
    place = opened([gaps[step] for step in steps], settings)
    return None if place is None else steps[place - 1]
