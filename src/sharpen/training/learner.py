"""The updates that one rollout feeds. Axes: B sequences, T tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharpen.methods import Method
from sharpen.models.policy import Policy
from sharpen.records import TrainingBatch
from sharpen.tracking.metrics import Means
from sharpen.training import batches
from sharpen.training.optimiser import Optimiser


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Turns a rollout's batch into optimiser updates of a policy.

    Attributes:
        policy: what is trained.
        reference: the KL term's reference, or None.
        method: advantages and losses.
        optimiser: of the policy's parameters.
        temperature: of the sampling.
        token_budget: token positions of one micro-batch.
        num_iterations: passes over the rollout (μ).
        minibatches: updates of a pass.
        seed: the run's.
    """

    policy: Policy
    reference: Policy | None
    method: Method
    optimiser: Optimiser
    temperature: float
    token_budget: int
    num_iterations: int = 1
    minibatches: int = 1
    seed: int = 0

    def learn(self, batch: TrainingBatch, *, step: int, constant_length: int) -> dict[str, float]:
        """Make num_iterations × minibatches updates; the metrics are means over all tokens they trained on.

        Args:
            batch: the whole rollout, without weights.
            step: of training, counted from 1.
            constant_length: L of the reductions that divide by a constant, in tokens.
        """
        means = Means()
        if len(batch.tokens):
            batch = self._with_fixed_logprobs(batch)
            for iteration in range(self.num_iterations):
                parts = batches.minibatches(
                    batch,
                    self.method,
                    self.minibatches,
                    constant_length=constant_length,
                    seed=self.seed,
                    step=step,
                    iteration=iteration,
                )
                for part in parts:
                    self._update(part, means)
        return means.result()

    def backward(self, minibatch: TrainingBatch, means: Means) -> float:
        """Add the minibatch's gradient to the policy's parameters, micro-batch by micro-batch, and return its loss.

        The loss is a plain sum over tokens under the minibatch's weights, so the cut changes neither it nor the gradient.
        """
        total = 0.0
        rows = batches.learning_rows(minibatch, self.method)
        for micro in batches.microbatches(minibatch, rows, self.policy, self.token_budget):
            micro = _on_device(micro, self.policy)
            output = self.policy.logprobs(micro, temperature=self.temperature)
            token_loss = self.method.loss(output.logprobs, micro)
            loss = (micro.weights * token_loss.values).sum()
            if loss.requires_grad:
                loss.backward()
            total += float(loss.detach())
            self._note(micro, output.logprobs.detach(), output.entropy, token_loss, means)
        return total

    def _update(self, minibatch: TrainingBatch, means: Means) -> None:
        trained = len(batches.learning_rows(minibatch, self.method))
        means.add("loss", self.backward(minibatch, means), 1)
        rate = self.optimiser.rate
        if trained:
            norm = self.optimiser.step()
            means.add("grad_norm", norm, 1)
            means.add("learning_rate", rate, 1)
        means.add("trained_share", trained, len(minibatch.tokens))

    def _note(self, micro: TrainingBatch, logprobs: Tensor, entropy: Tensor, token_loss, means: Means) -> None:  # type: ignore[no-untyped-def]
        mask = micro.loss_mask
        count = int(mask.sum())
        means.add("entropy", float(entropy[mask].sum()), count)
        means.add("clip_fraction", float(token_loss.clipped[mask].sum()), count)
        means.add("ratio", float(token_loss.ratio[mask].sum()), count)
        old = logprobs if micro.old_logprobs is None else micro.old_logprobs
        gap = (old - micro.sampling_logprobs)[mask].abs()
        means.add("engine_gap", float(gap.sum()), count)
        means.add_max("engine_gap_max", float(gap.max()) if count else 0.0)
        if token_loss.kl is not None:
            means.add("kl", float(token_loss.kl[mask].sum()), count)

    def _with_fixed_logprobs(self, batch: TrainingBatch) -> TrainingBatch:
        """Add the old policy's and the reference's log-probabilities where the loss needs them, taken before the first update.

        With one update a rollout the policy is the old policy when it is differentiated, and needs no second pass.
        """
        rows = batches.learning_rows(batch, self.method)
        old = self._score(self.policy, batch, rows) if self.num_iterations * self.minibatches > 1 else None
        ref = self._score(self.reference, batch, rows) if self.reference is not None else None
        return replace(batch, old_logprobs=old, ref_logprobs=ref)

    @torch.no_grad()
    def _score(self, policy: Policy, batch: TrainingBatch, rows: Tensor) -> Tensor:
        """Log-probabilities [B, T] of these rows, 0 in the others."""
        out = torch.zeros(batch.tokens.shape)
        done = 0
        for micro in batches.microbatches(batch, rows, policy, self.token_budget):
            values = policy.logprobs(micro, temperature=self.temperature).logprobs.float().cpu()
            out[rows[done : done + len(values)], : values.shape[1]] = values
            done += len(values)
        return out


def _on_device(batch: TrainingBatch, policy: Policy) -> TrainingBatch:
    device = next(policy.module.parameters()).device
    moved = {
        name: value.to(device)
        for name in ("tokens", "loss_mask", "advantages", "weights", "sampling_logprobs", "old_logprobs", "ref_logprobs")
        if (value := getattr(batch, name)) is not None
    }
    return replace(batch, **moved)
