"""A run's diagnosis, from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sharpen.errors import RunError
from sharpen.evaluation import diagnosis
from sharpen.evaluation.behaviours import Behaviours
from sharpen.evaluation.diagnosis import Finding
from sharpen.evaluation.history import ENOUGH, History
from sharpen.methods import METHODS
from sharpen.pipelines.behaviours import behaviours, evaluations
from sharpen.recipe import load_recipe
from sharpen.rewards.gaming import METRIC, GamingSettings
from sharpen.tracking.events import read
from sharpen.tracking.observer import Observer
from sharpen.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found in a run.

    Attributes:
        findings: what is wrong or wasteful; empty where nothing is.
        steps: finished steps of training.
        notes: what could not be looked at, a sentence each.
    """

    findings: tuple[Finding, ...]
    steps: int
    notes: tuple[str, ...] = ()


def diagnose(path: Path, *, observer: Observer | None = None, found: Behaviours | None = None) -> Diagnosis:
    """Apply every rule to a run, which may still be training.

    Args:
        path: its folder.
        observer: who watches.
        found: the behaviours of the run, where they have been read already.

    Raises:
        RunError: there is no run, or no step of it is finished.
    """
    folder = RunFolder(path)
    if not folder.recipe.is_file():
        raise RunError(f"{path}: there is no run here (no recipe.toml).", fix="Give the folder of a run, such as runs/quickstart.")
    recipe = load_recipe(folder.recipe)
    notes: list[str] = []
    held_out = {kept.step: list(kept.results) for _, kept in evaluations(folder, notes)}
    metrics, changed, stopped = {}, 1, None
    for event in read(folder.events):
        if event["event"] == "step":
            metrics[event["step"]] = event["metrics"]
        elif event["event"] == "reward_weights":
            changed = event["step"]
        elif event["event"] == "gaming" and event["then"] == "stop":
            stopped = event["step"]
    found = behaviours(path, observer=observer) if found is None else found
    method = METHODS.get(recipe.method.name) if recipe.method.file is None else None
    history = History(
        metrics=metrics,
        behaviours=found,
        held_out=held_out,
        updates=recipe.training.num_iterations * recipe.training.minibatches,
        value_warmup=recipe.training.value_warmup if method is None or method.value is not None else 0,
        same_reward_from=changed,
        demonstrations=method is not None and method.data_source == "demonstrations",
        learned_gaps={
            step: gap for step, one in metrics.items() if (gap := one.get(METRIC)) is not None and recipe.rewards.learned_at(step)
        },
        gaming=recipe.rewards.gaming or GamingSettings(),
    )
    if stopped is not None:
        notes.append(f"Training ended after step {stopped} of {recipe.training.steps}, as rewards.gaming asks.")
    elif len(metrics) < recipe.training.steps:
        notes.append(f"{len(metrics)} of {recipe.training.steps} steps are done.")
    if len(metrics) < ENOUGH:
        notes.append(f"Rules that compare the beginning with the end need {ENOUGH} steps and were silent.")
    if changed > 1:
        notes.append(f"The parts of the reward changed at step {changed}; rewards are compared from there on.")
    if len(held_out) < 2:
        notes.append("There are no two evaluations of held-out problems to compare ([problems.held_out], evaluation.every).")
    return Diagnosis(findings=tuple(diagnosis.diagnose(history)), steps=len(metrics), notes=tuple(notes))
