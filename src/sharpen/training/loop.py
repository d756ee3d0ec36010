"""The training loop.

One step, left to right:

source.collect() (problems → completions → rewards) → pack → method.with_advantages() → method.loss(policy(batch)) → optimiser.step()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sharpen.errors import RewardError, RunError
from sharpen.recipe import Recipe
from sharpen.rollout.engine import Sampling
from sharpen.tracking import completions
from sharpen.tracking.events import EventLog
from sharpen.tracking.observer import Observer
from sharpen.tracking.trackers import FanOut
from sharpen.training import batches, checkpoint
from sharpen.training.checkpoint import State
from sharpen.training.collect import Collected, summary
from sharpen.training.gaming import Watch
from sharpen.training.interrupt import Interrupt
from sharpen.training.interrupt import watch as watching
from sharpen.training.learner import Learner
from sharpen.training.sources import Source


class Interrupted(Exception):
    """The run was asked to stop; what it had done is saved.

    Attributes:
        signal: the number of the signal that asked.
        step: the last step that was done.
    """

    def __init__(self, signal: int, step: int) -> None:
        super().__init__(f"stopped after step {step}; saved. Go on with --resume.")
        self.signal, self.step = signal, step


@dataclass
class Trainer:
    """A run's loop over its parts; `training.setup` builds one.

    Attributes:
        recipe: the settings.
        folder: the run's.
        source: gives a step its completions and their rewards.
        learner: makes updates.
        write_model: writes the policy as Hugging Face files into a folder.
        state: where the run stands.
        events: what happened, the same for equal runs.
        timings: how long it took.
        trackers: where metrics go beside.
        observer: who watches.
        measure: gives figures of the policy as it is, by step; None where held-out problems are not looked at on the way.
        watch: looks at a learned reward.
        saved_step: the step of the newest checkpoint.
        flat: shares of groups without variance, of this process's steps.
        warned: whether the user was told that most of them teach nothing.
    """

    recipe: Recipe
    folder: Path
    source: Source
    learner: Learner
    write_model: Callable[[Path], object]
    state: State
    events: EventLog
    timings: EventLog
    trackers: FanOut
    observer: Observer
    measure: Callable[[int], Mapping[str, Any]] | None = None
    watch: Watch = field(default_factory=lambda: Watch(outputs={}))
    saved_step: int = field(default=-1)
    flat: list[float] = field(default_factory=list)
    warned: bool = False

    def run(self) -> None:
        """Train to the recipe's last step, saving on the way; the last step is always saved.

        Raises:
            Interrupted: a signal asked to stop; the step in hand was finished and saved.
        """

        def tell(name: str) -> None:
            self.observer.notice(f"{name}: finishing this step, then saving. Once more to leave at once.")

        with watching(tell) as interrupt:
            while self.state.step < self.recipe.training.steps and not self.watch.stops:
                self.step(interrupt)
                self._measure()
                if interrupt or self.state.step % self.recipe.checkpoint.every == 0:
                    self.save()
                if interrupt.signal is not None:
                    raise Interrupted(interrupt.signal, self.state.step)
            if self.saved_step != self.state.step:
                self.save()

    def step(self, interrupt: Interrupt | None = None) -> None:
        """One rollout, and the updates it feeds."""
        step = self.state.step + 1
        settings = self.recipe.rollout
        start = time.perf_counter()
        self.observer.phase("rollout", settings.problems * settings.group_size)
        sampling = Sampling(max_new_tokens=settings.limit(step), temperature=settings.temperature)
        collected = self.source.collect(step, sampling, self.observer.advance)
        sampled = time.perf_counter()
        self._check(collected, step)
        self.observer.phase("training", 0)
        batch = self.learner.prepare(batches.build(collected.groups, collected.scores))
        path = completions.path_of(self.folder / "completions", step)
        completions.write(path, collected.groups, collected.scores, batches.advantages_of(batch, collected.groups))
        weights = self.watch.weights(step, self.recipe.rewards.weights(step))
        metrics = (
            summary(collected)
            | self.watch.see(step, collected.scores)
            | self.learner.update(batch, step=step, constant_length=settings.longest)
        )
        if any(not metrics.get(name, 0.0) < float("inf") for name in ("grad_norm", "value_grad_norm")):
            raise RunError(
                f"step {step}: the gradient is not finite, so no update was made of it.",
                fix="Lower training.learning_rate, or train in float32 (training.dtype=float32); then go on with --resume.",
            )
        self._finish(step, collected, metrics, weights, {"rollout": sampled - start, "training": time.perf_counter() - sampled})

    def _measure(self) -> None:
        """Evaluate on the way; before the step is saved, so that a resumed run's log has it once."""
        every, step = self.recipe.evaluation.every, self.state.step
        if self.measure is not None and every and step % every == 0:
            self.events.append("evaluation", step=step, figures=self.measure(step))

    def save(self) -> None:
        """Write a checkpoint of where the run stands."""
        self.observer.phase("checkpoint", 0)
        reference = self.learner.reference
        checkpoint.save(
            self.folder / "checkpoints",
            self.state,
            write_model=self.write_model,
            optimiser=self.learner.optimiser.state_tensors(),
            reference=dict(reference.module.named_parameters()) if reference is not None and self.state.reference_step > 0 else None,
            critic=self.learner.critic.state_tensors() if self.learner.critic is not None else None,
            keep=self.recipe.checkpoint.keep,
        )
        self.saved_step = self.state.step

    def _check(self, collected: Collected, step: int) -> None:
        if not bool((~collected.scores.total.isnan()).any()):
            first = collected.scores.failures[0] if collected.scores.failures else None
            why = f"; the first: {first.function} on problem {first.problem_id}: {first.reason}" if first else ""
            raise RewardError(f"step {step}: no completion could be scored{why}.", fix="Mend the reward function or the problems.")

    def _finish(
        self, step: int, collected: Collected, metrics: dict[str, float], weights: Mapping[str, float], seconds: dict[str, float]
    ) -> None:
        every = self.recipe.training.reference_sync
        reference_step = self.state.reference_step
        if every and step % every == 0 and self.learner.reference is not None:
            with torch.no_grad():
                for ours, theirs in zip(self.learner.reference.module.parameters(), self.learner.policy.module.parameters(), strict=True):
                    ours.copy_(theirs)
            reference_step = step
        tokens = sum(len(c.tokens) for group in collected.groups for c in group.completions)
        totals = dict(self.state.totals)
        totals["completions"] = totals.get("completions", 0) + sum(len(group.completions) for group in collected.groups)
        totals["tokens"] = totals.get("tokens", 0) + tokens
        self.state = replace(
            self.state,
            step=step,
            updates=self.learner.optimiser.updates,
            value_updates=self.learner.critic.optimiser.updates if self.learner.critic is not None else 0,
            problem_position=self.source.problems.position,
            reference_step=reference_step,
            totals=totals,
        )
        metrics = metrics | {
            "updates": float(self.state.updates),
            "total_tokens": float(totals["tokens"]),
            "total_completions": float(totals["completions"]),
        }
        seconds = seconds | {"step": sum(seconds.values()), "tokens_per_second": tokens / max(1e-9, seconds["rollout"])}
        if step == 1 or weights != self.watch.weights(step - 1, self.recipe.rewards.weights(step - 1)):
            self.events.append("reward_weights", step=step, weights=dict(weights))
        self.events.append("step", step=step, metrics=metrics)
        for failure in collected.scores.failures:
            self.events.append(
                "reward_failure",
                step=step,
                function=failure.function,
                problem_id=failure.problem_id,
                index=failure.index,
                reason=failure.reason,
            )
        if self.watch.opened == step and self.watch.settings is not None:
            self.events.append("gaming", step=step, gaps=self.watch.windows()[1], then=self.watch.settings.then)
            self.observer.notice(f"step {step}: {self.watch.told()}")
        self.timings.append("step", step=step, seconds=seconds)
        if self.learner.method.needs_group:
            self._warn_of_waste(metrics["zero_variance"])
        self.trackers.log(metrics | {f"time/{name}": value for name, value in seconds.items()}, step)
        self.observer.step(step, self.recipe.training.steps, metrics, seconds)

    def _warn_of_waste(self, zero_variance: float) -> None:
        """Say once when, over ten steps, most groups have equal rewards and so teach nothing."""
        self.flat.append(zero_variance)
        if not self.warned and len(self.flat) >= 10 and sum(self.flat[-10:]) / 10 > 0.75:
            self.observer.notice(
                f"{sum(self.flat[-10:]) / 10:.0%} of the groups of the last ten steps had equal rewards and taught nothing: the problems "
                "are too easy or too hard by now. Choose others, select by [problems.difficulty], set rollout.refills, or raise "
                "rollout.group_size."
            )
            self.warned = True
