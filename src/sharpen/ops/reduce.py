"""From per-token losses to a scalar, by weights of the whole minibatch.

The sum of weight × loss over any cut into micro-batches or ranks is the same number and the same gradient.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from sharpen.ops import checks

Reduction = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum-norm", "sequence-sum", "pair-mean"]


def token_weights(mask: Tensor, reduction: Reduction, *, constant_length: int | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    r"""The weight of each token in the minibatch's loss.

    With B' the sequences of which any token counts:

    - `seq-mean-token-mean`: $1 / (B' |o_i|)$, as GRPO (DeepSeekMath Eq. 3);
    - `token-mean`: $1 / \sum_i |o_i|$, as DAPO;
    - `seq-mean-token-sum-norm`: $1 / (B' L)$ for the constant length L, as Dr.GRPO;
    - `sequence-sum`: $1 / B'$, the policy gradient's own;
    - `pair-mean`: $2 / B'$, one over the number of pairs, for losses of which a pair of sequences has one.

    Args:
        mask: bool [B, T], the tokens that count in numerator and denominator alike.
        reduction: which.
        constant_length: L in tokens, for `seq-mean-token-sum-norm` only.
        dtype: of the result.

    Returns:
        [B, T], 0 where the mask is False; all 0 when nothing counts. Per-token losses [1, 1] and [2] * 6 reduce to 1.75 (token-mean), 1.5
        (seq-mean-token-mean) and 0.875 (constant length 8).
    """
    checks.rank(2, mask=mask)
    lengths = mask.sum(dim=1, keepdim=True)
    sequences = (lengths > 0).sum().clamp(min=1)
    if reduction == "seq-mean-token-mean":
        divisor = sequences * lengths.clamp(min=1)
    elif reduction == "token-mean":
        divisor = lengths.sum().clamp(min=1)
    elif reduction == "seq-mean-token-sum-norm":
        if constant_length is None or constant_length < 1:
            raise ValueError(f"seq-mean-token-sum-norm: expected a constant_length of at least 1, got {constant_length}")
        divisor = sequences * constant_length
    elif reduction == "sequence-sum":
        divisor = sequences
    elif reduction == "pair-mean":
        divisor = sequences / 2
    else:
        raise ValueError(f"expected a reduction of {get_args(Reduction)}, got {reduction!r}")
    return mask.to(dtype) / divisor.to(dtype)


def weighted_sum(values: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """The sum of weight × value where the mask is True, [B, T] → scalar; selects, so that a NaN at a masked position stays out."""
    checks.same_shape(values=values, weights=weights, mask=mask)
    return torch.where(mask, values * weights, 0.0).sum()
