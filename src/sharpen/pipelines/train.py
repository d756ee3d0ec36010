"""One run, from a recipe to a trained model: load, check, train, evaluate the model after and before training.

Whatever can be found wrong is found before the first completion is sampled.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sharpen.errors import RunError, SharpenError
from sharpen.evaluation import in_parts, record
from sharpen.evaluation.changes import Changes, changes
from sharpen.evaluation.evaluate import evaluate
from sharpen.evaluation.summary import Comparison, ProblemResult, summarise
from sharpen.folders import saving
from sharpen.models import lora
from sharpen.models.loading import LoadedModel, resolve_device, resolve_dtype
from sharpen.models.policy import LanguagePolicy, Policy
from sharpen.models.saving import save_model
from sharpen.pipelines import data, parts
from sharpen.problems.checks import check_golds, check_sandbox
from sharpen.problems.difficulty import select_by_pass_rate
from sharpen.problems.source import fingerprint, load_problems
from sharpen.recipe import Recipe, to_table
from sharpen.records import Problem
from sharpen.rewards.score import Scorer
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.tracking.events import EventLog
from sharpen.tracking.observer import Observer, Silent
from sharpen.tracking.trackers import FanOut, load_trackers
from sharpen.training import checkpoint, environment, memory, run_folder
from sharpen.training.checkpoint import State
from sharpen.training.learner import Critic, Learner
from sharpen.training.loop import Trainer
from sharpen.training.memory import MemoryEstimate
from sharpen.training.optimiser import Optimiser
from sharpen.training.run_folder import RunFolder

PHASES = {"after": "evaluating the trained model", "before": "evaluating the model before training"}


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run leaves.

    Attributes:
        folder: where it lies.
        changes: the held-out problems before and after, with the verdict; None without held-out problems.
        memory: what was expected before the first step.
        peak_memory: the most bytes that the process held.
    """

    folder: RunFolder
    changes: Changes | None
    memory: MemoryEstimate
    peak_memory: int

    @property
    def comparison(self) -> Comparison | None:
        """The figures of the held-out problems before and after, and their change."""
        return None if self.changes is None else self.changes.comparison


def train(recipe: Recipe, *, recipe_path: Path | str, resume: bool = False, observer: Observer | None = None) -> RunResult:
    """Run a recipe.

    Args:
        recipe: the settings.
        recipe_path: where they were read from; relative files in them are looked for beside it.
        resume: go on with the run in the recipe's output folder.
        observer: who watches.

    Raises:
        SharpenError: anything in the recipe, the problems or the run's folder that cannot be used; earlier results stay as they are.
        Interrupted: a signal asked to stop; what was done is saved.
    """
    observer, recipe_path = observer or Silent(), Path(recipe_path)
    path = run_folder.choose(recipe, recipe_path, resume=resume)
    with run_folder.opened(path, recipe, resume=resume) as folder:
        try:
            run = _Run(recipe, recipe_path.parent, folder, observer)
        except SharpenError:
            if not resume:  # nothing was run, so nothing is left behind
                shutil.rmtree(path)
            raise
        return run.go()


class _Run:
    """A run being set up and carried out."""

    def __init__(self, recipe: Recipe, base: Path, folder: RunFolder, observer: Observer) -> None:
        self.recipe, self.folder, self.observer = recipe, folder, observer
        found = checkpoint.latest(folder.checkpoints, observer.notice)
        self.checkpoint: Path | None = found[0] if found else None
        self.state: State | None = found[1] if found else None
        self.resolved = dict(self.state.resolved) if self.state else self._resolve()
        parts.set_threads(self.resolved["threads"])
        observer.phase("loading", 0)
        self.trackers = FanOut(load_trackers(recipe.tracking.trackers, folder.path))
        self.train_problems, self.held_out = self._problems(base)
        self.method = parts.usable_method(recipe, base, observer.notice)
        self.scorer = Scorer(recipe.rewards, base=base, steps=recipe.training.steps)
        self.watch = parts.watch_on_rewards(recipe, self.method, self.scorer)
        parts.tell_of_rewards(recipe, observer.notice)
        parts.probe_rewards(self.scorer, self.train_problems[0], recipe.rollout.group_size)
        parts.ensure_model(recipe.model, observer)
        self.loaded, self.rollout = self._load(observer.notice)
        decode = self.rollout.decode if self.method.supervision == "process" else None
        self.scorer.meet(self.loaded.tokenizer, observer.notice, decode=decode)
        parts.know_reward_models(self.scorer, self.resolved, folder.path)
        self.policy = LanguagePolicy(self.loaded.model, recompute=recipe.training.gradient_checkpointing)
        self.memory = self._plan_memory()

    def go(self) -> RunResult:
        """Train, then evaluate; the result."""
        if self.state is None:
            self._fresh_logs()
        begins = 1 + (self.state.step if self.state is not None else 0)
        environment.add(self.folder, environment.describe(self.resolved, from_step=begins))
        step = self._train()
        self.folder.export(self.folder.checkpoints / f"step-{step:06d}")
        device = next(self.loaded.model.parameters()).device
        found = self._changes(step) if self.held_out else None
        return RunResult(folder=self.folder, changes=found, memory=self.memory, peak_memory=memory.peak(device))

    def _train(self) -> int:
        """All steps that are left; how many there are in all."""
        trainer = self._trainer(self._selected())
        self.trackers.start(self.folder.path.name, to_table(self.recipe))
        try:
            trainer.run()
        finally:
            self.trackers.finish()
            trainer.events.close()
            trainer.timings.close()
        return trainer.state.step

    def _changes(self, step: int) -> Changes:
        """Evaluate the trained model, then the one before training, which waits until now so that training begins at once."""
        after = self._evaluate("after", step=step)
        self.scorer.close()
        del self.policy, self.scorer, self.rollout, self.loaded  # the model has been written, and its memory is needed
        self.loaded, self.rollout = self._load()
        before = self._evaluate("before")
        found = changes(before, after, self.recipe.evaluation.ks, seed=self.recipe.seed)
        path = self.folder.evaluation / "comparison.json"
        with saving("the comparison", path, kept="The model and its evaluations are kept.", fix=in_parts.GO_ON):
            self.folder.write_json(path, found.to_dict())
        return found

    def _load(self, notice: Callable[[str], None] | None = None) -> tuple[LoadedModel, Rollout]:
        """The model before training, and what samples with it."""
        return parts.sampling_model(
            self.recipe.model,
            self.recipe.template,
            seed=self.recipe.seed,
            dtype=self.resolved["dtype"],
            device=self.resolved["device"],
            max_rows=self.recipe.rollout.max_rows,
            adapter=self.recipe.lora,
            notice=notice,
        )

    def _resolve(self) -> dict[str, Any]:
        training = self.recipe.training
        device = resolve_device(training.device)
        threads = parts.set_threads(None if training.threads == "auto" else training.threads)
        return {"device": device, "dtype": resolve_dtype(training.dtype, device), "threads": threads}

    def _problems(self, base: Path) -> tuple[list[Problem], list[Problem]]:
        settings = self.recipe.problems
        train = load_problems(settings.train, base=base)
        held_out = load_problems(settings.held_out, base=base) if settings.held_out is not None else []
        parts.check_apart(train, held_out)
        check_sandbox([*train, *held_out], self.recipe.rewards.sandbox, self.observer.notice)
        check_golds([*train, *held_out], sandbox=self.recipe.rewards.sandbox)
        if self.state is not None and self.state.problems_fingerprint != fingerprint(train):
            raise RunError(
                f"resume {self.folder.path}: the training problems are not those the run began with.",
                fix="Bring the old problems back, or begin a new run without --resume.",
            )
        return train, held_out

    def _plan_memory(self) -> MemoryEstimate:
        """Choose the token budget if it is left to us, and refuse a run that cannot fit."""
        recipe = self.recipe
        limits = {"rollout.max_new_tokens": recipe.rollout.longest, "evaluation.max_new_tokens": self._evaluation_limit()}
        longest = [
            parts.longest_sequence(problems, self.rollout, limit, self.loaded, key=key)
            for problems, (key, limit) in zip((self.train_problems, self.held_out), limits.items(), strict=True)
            if problems
        ]
        settings: dict[str, Any] = {
            "temperature": recipe.rollout.temperature,
            "needs_reference": self.method.needs_reference and recipe.lora is None,
            "needs_value": self.method.value is not None,
            "rows": recipe.rollout.max_rows,
            "sequence_length": max(longest),
            "optimiser": recipe.training.optimiser,
            "rewards": self.scorer.memory(self.resolved["device"]),
        }
        if "token_budget" not in self.resolved:
            chosen = recipe.training.token_budget
            self.resolved["token_budget"] = memory.choose_budget(self.policy, **settings) if chosen == "auto" else chosen
        needed = memory.estimate(self.policy, token_budget=self.resolved["token_budget"], **settings)
        memory.check(needed, next(self.loaded.model.parameters()).device)
        self.observer.notice(
            f"{self.loaded.name}: {sum(p.numel() for p in self.loaded.model.parameters()):,} parameters in {self.resolved['dtype']} on "
            f"{self.resolved['device']}; micro-batches of {self.resolved['token_budget']:,} tokens; "
            f"expected peak memory {memory.human(needed.peak)}"
        )
        if recipe.lora is not None:
            trained = sum(p.numel() for p in self.loaded.model.parameters() if p.requires_grad)
            count = len(list(lora.layers(self.loaded.model)))
            self.observer.notice(f"LoRA: {trained:,} of these are trained, adapters of rank {recipe.lora.rank} on {count} layers")
        return needed

    def _evaluation_limit(self) -> int:
        return self.recipe.evaluation.max_new_tokens or self.recipe.rollout.longest

    def _fresh_logs(self) -> None:
        """A run that was killed before its first checkpoint begins its logs anew."""
        for path in (self.folder.events, self.folder.timings):
            path.unlink(missing_ok=True)

    def _selected(self) -> list[Problem]:
        """The training problems of the wanted difficulty, estimated once a run."""
        settings = self.recipe.problems.difficulty
        if settings is None:
            return self.train_problems
        path = self.folder.path / "difficulty.json"
        if path.is_file():
            rates = json.loads(path.read_text(encoding="utf-8"))["pass_rates"]
        else:
            self.observer.phase("estimating difficulty", len(self.train_problems) * settings.samples)
            sampling = Sampling(max_new_tokens=self.recipe.rollout.limit(1), temperature=self.recipe.rollout.temperature)
            rates = evaluate(
                self.rollout,
                self.train_problems,
                settings.samples,
                sampling,
                stream="difficulty",
                sandbox=self.recipe.rewards.sandbox,
                on_progress=self.observer.advance,
            ).pass_rates
            self.folder.write_json(path, {"pass_rates": rates, "settings": settings.model_dump()})
        selection = select_by_pass_rate(self.train_problems, rates, settings.above, settings.below)
        dropped = ", ".join(f"{count} {reason}" for reason, count in selection.dropped.items() if count)
        self.observer.notice(f"difficulty: {len(selection.kept)} of {len(self.train_problems)} training problems kept ({dropped or 'all'})")
        return selection.kept

    def _evaluate(self, when: str, step: int = 0) -> list[ProblemResult]:
        """The held-out results, sampled once and kept in the run's folder; an interrupted evaluation goes on."""
        path = self.folder.evaluation / f"{when}.json"
        if path.is_file() and (known := record.read(path)).step == step:
            return list(known.results)
        recipe, settings, limit = self.recipe, self.recipe.evaluation, self._evaluation_limit()
        kept = {
            "model": recipe.model,
            "problems": recipe.problems.held_out.model_dump(mode="json") if recipe.problems.held_out else None,
            "problem_count": len(self.held_out),
            "fingerprint": fingerprint(self.held_out),
            "step": step,
            "max_new_tokens": limit,
            "template": recipe.template.model_dump(mode="json"),
            "seed": recipe.seed,
            "stream": "evaluation",
            "max_rows": recipe.rollout.max_rows,
            **{name: getattr(settings, name) for name in ("samples", "ks", "temperature", "top_p", "require_stop")},
            **{name: self.resolved[name] for name in ("dtype", "device", "threads")},
        }
        self.observer.phase(PHASES.get(when, f"evaluating {when}"), len(self.held_out) * settings.samples)
        parts_folder = path.with_suffix(".parts")
        results = in_parts.evaluate_in_parts(
            self.rollout,
            self.held_out,
            settings.samples,
            Sampling(max_new_tokens=limit, temperature=settings.temperature, top_p=settings.top_p),
            folder=parts_folder,
            settings=kept,
            max_rows=recipe.rollout.max_rows,
            require_stop=settings.require_stop,
            sandbox=recipe.rewards.sandbox,
            on_progress=self.observer.advance,
            notice=self.observer.notice,
        )
        whole = record.record(kept, self.held_out, results, settings.ks, seed=recipe.seed, step=step)
        in_parts.finish(parts_folder, path, path.with_suffix(".parquet"), whole)
        return results

    def _figures(self, step: int) -> dict[str, Any]:
        """Figures of the held-out problems in the middle of training."""
        when = "after" if step == self.recipe.training.steps or self.watch.stops else f"step-{step:06d}"
        found = summarise(self._evaluate(when, step), self.recipe.evaluation.ks, seed=self.recipe.seed)
        self.observer.notice(
            f"step {step}: held-out " + ", ".join(f"Pass@{k} {100 * estimate.value:.1f}" for k, estimate in found.pass_at_k.items())
        )
        return found.to_dict()

    def _reference(self) -> Policy:
        """The policy before training."""
        if self.recipe.lora is not None:
            return lora.WithoutAdapter(self.policy)
        return LanguagePolicy(copy.deepcopy(self.loaded.model).requires_grad_(False))

    def _write_model(self, folder: Path) -> None:
        save_model(self.loaded.model, self.loaded.tokenizer, folder)
        if self.recipe.lora is not None:
            lora.save_adapter(self.loaded.model, folder / "adapter")

    def _trainer(self, problems: list[Problem]) -> Trainer:
        recipe, training = self.recipe, self.recipe.training
        reference = self._reference() if self.method.needs_reference else None
        optimiser = Optimiser(
            self.loaded.model.named_parameters(),
            learning_rate=training.learning_rate,
            kind=training.optimiser,
            betas=training.betas,
            weight_decay=training.weight_decay,
            max_grad_norm=training.max_grad_norm,
            warmup=training.warmup,
            total=training.steps * training.num_iterations * training.minibatches,
            schedule=training.schedule,
        )
        critic = data.critic(recipe, self.method, self.loaded)
        state = self.state or State(
            step=0,
            updates=0,
            problem_position=0,
            reference_step=0,
            problems_fingerprint=fingerprint(self.train_problems),
            resolved=self.resolved,
            totals={},
        )
        source = data.source(
            recipe, self.method, problems, state.problem_position, self.loaded, self.rollout, self.scorer, self.folder, self.observer
        )  # before what follows: the policy that samples once is the one before training
        if self.checkpoint is not None:
            _restore(self.checkpoint, state, self.loaded, reference, optimiser, critic)
            self.observer.notice(f"resuming after step {state.step} from {self.checkpoint}")
        if critic is not None:
            self.observer.notice(f"value model: {critic.parameters:,} parameters, {memory.human(critic.memory)} with its optimiser")
        events = _log(self.folder.events, state.step)
        self.watch.resume(events)
        if state.step == 0:
            events.append("parameters", **data.parameters(self.loaded, critic))
        return Trainer(
            recipe=recipe,
            folder=self.folder.path,
            source=source,
            learner=Learner(
                policy=self.policy,
                reference=reference,
                method=self.method,
                optimiser=optimiser,
                temperature=recipe.rollout.temperature,
                token_budget=self.resolved["token_budget"],
                num_iterations=training.num_iterations,
                minibatches=training.minibatches,
                seed=recipe.seed,
                critic=critic,
            ),
            write_model=self._write_model,
            state=state,
            events=events,
            timings=_log(self.folder.timings, state.step),
            trackers=self.trackers,
            observer=self.observer,
            measure=self._figures if self.held_out else None,
            watch=self.watch,
            saved_step=state.step if self.checkpoint is not None else -1,
        )


def _restore(path: Path, state: State, loaded: LoadedModel, reference: Policy | None, optimiser: Optimiser, critic: Critic | None) -> None:
    restore = checkpoint.load_adapter if any(lora.layers(loaded.model)) else checkpoint.load_weights
    restore(loaded.model, path)
    optimiser.load_state_tensors(checkpoint.load_tensors(path / "training" / "optimiser.safetensors"), state.updates)
    if critic is not None:
        critic.load_state_tensors(checkpoint.load_tensors(path / "training" / "critic.safetensors"), state.value_updates)
    if reference is not None and state.reference_step > 0:
        tensors = checkpoint.load_tensors(path / "training" / "reference.safetensors")
        with torch.no_grad():
            for name, parameter in reference.module.named_parameters():
                parameter.copy_(tensors[name])


def _log(path: Path, step: int) -> EventLog:
    """The log, without what was written after the checkpoint."""
    log = EventLog(path)
    log.truncate_after(step)
    return log
