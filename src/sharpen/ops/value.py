"""The value model's loss. Axes: B sequences, T tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpen.ops import checks


def squared_error(values: Tensor, returns: Tensor, old_values: Tensor, *, clip: float | None) -> Tensor:
    r"""$\frac12 \max\left((V - R)^2, (V_{clip} - R)^2\right)$ with $V_{clip}$ within `clip` of the value before the rollout's first update.

    Source: PPO's reference implementation (the paper's Eq. 9 has no clip); half, as verl and TRL.

    Args:
        values: V(s_t), [B, T], with gradient.
        returns: R_t, [B, T].
        old_values: [B, T].
        clip: in the values' unit; None takes (V - R)² alone.

    Returns:
        [B, T]. V 1.0, R 2.0, old 0.5, clip 0.2: max(1.0, 1.69) / 2 = 0.845, whose derivative is 0, since V_clip is at its bound.
    """
    checks.same_shape(values=values, returns=returns, old_values=old_values)
    error = (values - returns).square()
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns).square())
    return error / 2
