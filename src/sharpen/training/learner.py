"""The updates that one rollout feeds. Axes: B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharpen.methods import Method, TokenLoss
from sharpen.models.policy import Policy, Reader
from sharpen.models.value import ValueModel
from sharpen.records import TrainingBatch
from sharpen.tracking.metrics import Means
from sharpen.training import batches
from sharpen.training.optimiser import Optimiser


@dataclass(frozen=True, kw_only=True)
class Critic:
    """A value model and what trains it.

    Attributes:
        model: gives V(s_t).
        optimiser: of its parameters, apart from the policy's.
        warmup: steps in which it alone is trained.
    """

    model: ValueModel
    optimiser: Optimiser
    warmup: int = 0

    @property
    def parameters(self) -> int:
        """How many parameters the value model has."""
        return sum(p.numel() for p in self.model.module.parameters())

    @property
    def memory(self) -> int:
        """Bytes of its weights, gradients, moments and master copies."""
        return sum(p.numel() * (2 * p.element_size() + 8 + (0 if p.dtype == torch.float32 else 8)) for p in self.model.module.parameters())

    def state_tensors(self) -> dict[str, Tensor]:
        """The weights and the optimiser's state by name, for the checkpoint."""
        weights = {f"weights/{name}": p.detach() for name, p in self.model.module.named_parameters()}
        return weights | {f"optimiser/{name}": tensor for name, tensor in self.optimiser.state_tensors().items()}

    def load_state_tensors(self, tensors: dict[str, Tensor], updates: int) -> None:
        """The opposite of `state_tensors`, bit for bit."""
        with torch.no_grad():
            for name, p in self.model.module.named_parameters():
                p.copy_(tensors[f"weights/{name}"])
        prefix = "optimiser/"
        state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        self.optimiser.load_state_tensors(state, updates)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Turns a rollout's batch into optimiser updates of a policy, and of a value model where the method has one.

    Attributes:
        policy: what is trained.
        reference: what the method compares with, or None.
        method: advantages and losses.
        optimiser: of the policy's parameters.
        temperature: of the sampling.
        token_budget: token positions of one micro-batch.
        num_iterations: passes over the rollout (μ).
        minibatches: updates of a pass.
        seed: the run's.
        critic: the value model, or None.
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
    critic: Critic | None = None

    def learn(self, batch: TrainingBatch, *, step: int, constant_length: int) -> dict[str, float]:
        """Make num_iterations × minibatches updates; the metrics are means over all tokens they trained on.

        Args:
            batch: the whole rollout, as `batches.build` makes it.
            step: of training, counted from 1.
            constant_length: L of the reductions that divide by a constant, in tokens.
        """
        return self.update(self.prepare(batch), step=step, constant_length=constant_length)

    def prepare(self, batch: TrainingBatch) -> TrainingBatch:
        """The rollout with what stays fixed while it is learnt from: log-probabilities, values, advantages, returns.

        Advantages come first where they depend on rewards alone: what has none need not be read by the policies.
        """
        if not len(batch.tokens):
            return batch
        if self.method.judges_tokens:
            return self.method.with_advantages(self._with_values(self._with_fixed_logprobs(batch, judged=True)))
        batch = self.method.with_advantages(batch)
        return self._with_fixed_logprobs(batch) if len(batch.tokens) else batch

    def update(self, batch: TrainingBatch, *, step: int, constant_length: int) -> dict[str, float]:
        """Make the updates of a prepared rollout; see `learn`."""
        means = Means()
        for iteration in range(self.num_iterations if len(batch.tokens) else 0):
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
                self._update(part, means, step)
        return means.result()

    def backward(self, minibatch: TrainingBatch, means: Means) -> float:
        """Add the minibatch's gradient to the policy's parameters, micro-batch by micro-batch, and return its loss.

        The loss is a plain sum over tokens under the minibatch's weights, so the cut changes neither it nor the gradient.
        """
        total = 0.0
        rows = batches.learning_rows(minibatch, self.method)
        for micro in batches.microbatches(minibatch, rows, self.policy, self.token_budget):
            micro = micro.to(_device(self.policy))
            output = self.policy.logprobs(micro, temperature=self.temperature)
            token_loss = self.method.loss(output.logprobs, micro)
            loss = (micro.weights * token_loss.values).sum()
            if loss.requires_grad:
                loss.backward()
            total += float(loss.detach())
            self._note(micro, output.logprobs.detach(), output.entropy, token_loss, means)
        return total

    def value_backward(self, minibatch: TrainingBatch, means: Means) -> float:
        """As `backward`, for the value model, over all completions: those of advantage 0 too."""
        assert self.critic is not None
        model, total = self.critic.model, 0.0
        for micro in batches.microbatches(minibatch, torch.arange(len(minibatch.tokens)), model, self.token_budget):
            micro = micro.to(_device(model))
            values = model.values(micro)
            loss = (micro.weights * self.method.value_loss(values, micro)).sum()
            loss.backward()
            total += float(loss.detach())
            assert micro.returns is not None
            error = (values.detach() - micro.returns)[micro.loss_mask]
            spread = micro.returns[micro.loss_mask]
            means.add("value", float(values.detach()[micro.loss_mask].sum()), len(error))
            means.add("value_error", float(error.square().sum()), len(error))
            means.add("return", float(spread.sum()), len(error))
        return total

    def _update(self, minibatch: TrainingBatch, means: Means, step: int) -> None:
        if self.critic is not None:
            means.add("value_loss", self.value_backward(minibatch, means), 1)
            means.add("value_learning_rate", self.critic.optimiser.rate, 1)
            means.add("value_grad_norm", self.critic.optimiser.step(), 1)
            if step <= self.critic.warmup:
                return
        trained = len(batches.learning_rows(minibatch, self.method))
        means.add("loss", self.backward(minibatch, means), 1)
        rate = self.optimiser.rate
        if trained:
            norm = self.optimiser.step()
            means.add("grad_norm", norm, 1)
            means.add("learning_rate", rate, 1)
        means.add("trained_share", trained, len(minibatch.tokens))

    def _note(self, micro: TrainingBatch, logprobs: Tensor, entropy: Tensor, token_loss: TokenLoss, means: Means) -> None:
        mask = micro.loss_mask
        count = int(mask.sum())
        means.add("entropy", float(entropy[mask].sum()), count)
        means.add("clip_fraction", float(token_loss.clipped[mask].sum()), count)
        means.add("ratio", float(token_loss.ratio[mask].sum()), count)
        old = logprobs if micro.old_logprobs is None else micro.old_logprobs
        gap = (old - micro.sampling_logprobs)[mask & ~micro.sampling_logprobs.isnan()].abs()  # nobody sampled a demonstration
        if len(gap):
            means.add("engine_gap", float(gap.sum()), len(gap))
            means.add_max("engine_gap_max", float(gap.max()))
        if token_loss.kl is not None:
            means.add("kl", float(token_loss.kl[mask].sum()), count)

    def _with_fixed_logprobs(self, batch: TrainingBatch, *, judged: bool = False) -> TrainingBatch:
        """Add the old policy's and the reference's log-probabilities where they are needed, taken before the first update.

        With one update a rollout the policy is the old policy when it is differentiated, and needs no second pass unless advantages are
        made of it (`judged`). What a batch brings along stays.
        """
        rows = torch.arange(len(batch.tokens)) if judged else batches.learning_rows(batch, self.method)
        old, ref = batch.old_logprobs, batch.ref_logprobs
        if old is None and (judged or self.num_iterations * self.minibatches > 1):
            old = self._score(self.policy, batch, rows)
        if ref is None and self.reference is not None:
            ref = self._score(self.reference, batch, rows)
        return replace(batch, old_logprobs=old, ref_logprobs=ref)

    @torch.no_grad()
    def _score(self, policy: Policy, batch: TrainingBatch, rows: Tensor) -> Tensor:
        """Log-probabilities [B, T] of these rows, 0 in the others; in float32 at least."""
        micros = batches.microbatches(batch, rows, policy, self.token_budget)
        return _gathered(batch, rows, (policy.logprobs(micro, temperature=self.temperature).logprobs for micro in micros))

    @torch.no_grad()
    def _with_values(self, batch: TrainingBatch) -> TrainingBatch:
        if self.critic is None:
            return batch
        model, rows = self.critic.model, torch.arange(len(batch.tokens))
        micros = batches.microbatches(batch, rows, model, self.token_budget)
        return replace(batch, values=_gathered(batch, rows, (model.values(micro.to(_device(model))) for micro in micros)))


def _gathered(batch: TrainingBatch, rows: Tensor, parts: Iterable[Tensor]) -> Tensor:
    """What the micro-batches of these rows gave, [b, t] each, as one [B, T] on the CPU, 0 elsewhere."""
    out, done = torch.zeros(batch.tokens.shape), 0
    for values in parts:
        if values.dtype == torch.float64:
            out = out.double()
        out[rows[done : done + len(values)], : values.shape[1]] = values.to(out.dtype).cpu()
        done += len(values)
    return out


def _device(model: Reader) -> torch.device:
    return next(model.module.parameters()).device
