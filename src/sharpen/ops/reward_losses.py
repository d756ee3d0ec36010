"""What reward models are fitted by; each function gives one number an example, in nats, and the caller takes the mean.

Axes: N examples.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from sharpen.ops.checks import same_shape


def binary(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy −y log σ(z) − (1 − y) log(1 − σ(z)); its derivative by z is σ(z) − y.

    For outcomes as for steps (Math-Shepherd, arXiv:2312.08935, Eq. 2 and 3); labels between 0 and 1 are soft ones.

    Args:
        logits: float [N].
        labels: float [N], in [0, 1].

    Returns:
        [N].
    """
    same_shape(logits=logits, labels=labels)
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def bradley_terry(chosen: Tensor, rejected: Tensor) -> Tensor:
    """−log σ(r_chosen − r_rejected), the negative log-likelihood of the preferences (Bradley and Terry 1952).

    Args:
        chosen: float [N], the rewards of what was preferred.
        rejected: float [N], of what it was preferred to.

    Returns:
        [N].
    """
    same_shape(chosen=chosen, rejected=rejected)
    return -functional.logsigmoid(chosen - rejected)
