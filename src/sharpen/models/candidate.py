r"""The candidate policy: a linear softmax over the complete candidate answers of a question.

    π_θ(a | q) = exp(θ · φ(q, a)) / Σ_b exp(θ · φ(q, b))

An answer is one token, the candidate's place, and a prompt is one token, the question's place. So whatever trains a language model trains
this one, and every expectation over it can be written out. Axes: N questions, C candidates, F features, B sequences, P questions of a
batch, G samples of each; T = 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sharpen import streams
from sharpen.models.policy import PolicyOutput
from sharpen.ops import checks
from sharpen.ops.logprobs import from_logits
from sharpen.records import TrainingBatch


class LinearScore(nn.Module):
    """θ · φ, from [..., F] to [...]; θ begins at 0, where every candidate is as likely as the others."""

    def __init__(self, features: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features, dtype=dtype))

    def forward(self, features: Tensor) -> Tensor:
        """The score of each candidate."""
        return features @ self.weight


class CandidatePolicy:
    """A policy over candidate answers; it implements `sharpen.models.policy.Policy`.

    Args:
        features: [N, C, F], φ of each candidate of each question; its dtype is the weights'.
    """

    def __init__(self, features: Tensor) -> None:
        checks.rank(3, features=features)
        self.features = features
        self.module = LinearScore(features.shape[2], features.dtype)

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Policy.cost`: one position each."""
        return [1] * len(batch.tokens)

    def logprobs(self, batch: TrainingBatch, *, temperature: float = 1.0) -> PolicyOutput:
        """See `Policy.logprobs`.

        Args:
            batch: prompts of one token, the question's place; completions of one token, the candidate's.
            temperature: > 0; scores are divided by it.

        Raises:
            ValueError: a prompt or a completion of another length.
        """
        if batch.tokens.shape[1:] != (1,) or any(len(prompt) != 1 for prompt in batch.prompts):
            raise ValueError(f"expected prompts of one token and tokens of shape (B, 1), got tokens {tuple(batch.tokens.shape)}")
        questions = torch.tensor([prompt[0] for prompt in batch.prompts], dtype=torch.int64)[batch.group_index]
        chosen, entropy = from_logits(self.module(self.features[questions]), batch.tokens[:, 0], temperature=temperature)
        mask = batch.loss_mask
        return PolicyOutput(torch.where(mask, chosen[:, None], 0.0), torch.where(mask, entropy[:, None], 0.0))

    @torch.no_grad()
    def distribution(self, questions: Sequence[int] | Tensor) -> Tensor:
        """π(a | q) of these questions, [n, C]."""
        return self.module(self.features[torch.as_tensor(questions, dtype=torch.int64)]).softmax(dim=-1)

    def sample(self, questions: Sequence[int], seeds: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Draw G candidates of each question, independently of one another: the same one may come twice.

        Args:
            questions: P places of questions.
            seeds: P rows of G seeds; a draw depends on its question, its seed and the weights alone.

        Returns:
            The candidates' places, int64 [P, G], and log π of each, [P, G].
        """
        probabilities = self.distribution(questions)
        uniform = torch.tensor([[streams.generator(seed).random() for seed in row] for row in seeds], dtype=torch.float64)
        below = probabilities.double().cumsum(dim=1)[:, None, :-1] <= uniform[:, :, None]  # the last one takes all that is left
        chosen = below.sum(dim=-1)
        return chosen, probabilities.gather(1, chosen).log()

    def frozen_copy(self) -> CandidatePolicy:
        """The policy as it is now, its weights apart and fixed; the features are shared."""
        other = copy.copy(self)
        other.module = copy.deepcopy(self.module).requires_grad_(False)
        return other


class QuestionValue(nn.Module):
    """A linear function of all that is known of a question, from [..., C · F] to [...]; it begins at 0."""

    def __init__(self, features: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros((), dtype=dtype))

    def forward(self, features: Tensor) -> Tensor:
        """The value of each question."""
        return features @ self.weight + self.bias


class CandidateValue:
    """A value model for the candidate policy; it implements `sharpen.models.value.ValueModel`.

    The state that an answer continues is its question, so the value is one of the question: linear in the features of all its candidates.

    Args:
        features: [N, C, F], as for `CandidatePolicy`.
    """

    def __init__(self, features: Tensor) -> None:
        checks.rank(3, features=features)
        self.features = features.flatten(1)
        self.module = QuestionValue(self.features.shape[1], features.dtype)

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Policy.cost`: one position each."""
        return [1] * len(batch.tokens)

    def values(self, batch: TrainingBatch) -> Tensor:
        """See `ValueModel.values`."""
        questions = torch.tensor([prompt[0] for prompt in batch.prompts], dtype=torch.int64)[batch.group_index]
        return torch.where(batch.loss_mask, self.module(self.features[questions])[:, None], 0.0)
