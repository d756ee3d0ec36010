"""A run as a report sees it: all that its folder holds, read once, with a sentence for each thing that is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharpen.errors import RunError
from sharpen.evaluation.behaviours import Behaviours
from sharpen.evaluation.changes import Changes
from sharpen.evaluation.history import quarter
from sharpen.evaluation.record import Record
from sharpen.pipelines.behaviours import Kept, behaviours, evaluations
from sharpen.pipelines.diagnose import Diagnosis, diagnose
from sharpen.recipe import Recipe, load_recipe
from sharpen.rewards.gaming import Then
from sharpen.tracking.events import read
from sharpen.tracking.observer import Observer
from sharpen.training import environment
from sharpen.training.run_folder import RunFolder

Gamed = tuple[int, Then]
Metrics = Mapping[int, Mapping[str, float | None]]


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What there is of a run.

    Attributes:
        folder: its paths.
        name: by which pages call it.
        recipe: the settings as resolved.
        metrics: of each finished step; None where a number was not finite.
        seconds: how long each step took, by part.
        records: evaluations of held-out problems, by step; 0 before training.
        changes: before and after training; None where one of the two is not there.
        behaviours: the completions in figures; None before the first step.
        diagnosis: what is wrong or wasteful; None before the first step.
        gamed: the step after which the gap of a learned reward counted as open, and what was done then; None where it did not.
        starts: the environments, as `training/environment.py` writes them.
        parameters: how many parameters are trained, where it is known.
        missing: what is not there, a sentence each.
    """

    folder: RunFolder
    name: str
    recipe: Recipe
    metrics: Metrics
    seconds: Mapping[int, Mapping[str, float]]
    records: Mapping[int, Record]
    changes: Changes | None
    behaviours: Behaviours | None
    diagnosis: Diagnosis | None
    starts: Sequence[Mapping[str, Any]]
    gamed: Gamed | None = None
    parameters: int | None = None
    missing: tuple[str, ...] = field(default=())

    @property
    def done(self) -> int:
        """Finished steps."""
        return len(self.metrics)

    @property
    def planned(self) -> int:
        """Steps that the recipe asks for."""
        return self.recipe.training.steps

    def series(self, name: str) -> dict[int, float]:
        """A metric by step, where it is there and finite."""
        return {step: float(value) for step, one in self.metrics.items() if (value := one.get(name)) is not None}

    def late(self, name: str) -> float | None:
        """The mean of a metric over the last quarter of the steps that have it."""
        series = self.series(name)
        steps = quarter(list(series)) if series else []
        return sum(series[step] for step in steps) / len(steps) if steps else None


def look(path: Path, *, observer: Observer | None = None, kept: Kept | None = None) -> RunView:
    """Read a run, which may still be training, or have been interrupted.

    Args:
        path: its folder.
        observer: who watches.
        kept: see `pipelines.behaviours`.

    Raises:
        RunError: there is no run here, or a file of it is damaged.
    """
    folder = RunFolder(path)
    if not folder.recipe.is_file():
        raise RunError(f"{path}: there is no run here (no recipe.toml).", fix="Give the folder of a run, such as runs/quickstart.")
    recipe, missing = load_recipe(folder.recipe), list[str]()
    metrics, parameters, gamed = _events(folder)
    records = {kept.step: kept for _, kept in evaluations(folder, missing)}
    changes = _changes(folder)
    found = behaviours(path, observer=observer, kept=kept) if metrics else None
    starts = environment.read(folder)
    missing += _missing(folder, recipe, len(metrics), records, changes, starts, gamed)
    return RunView(
        folder=folder,
        name=path.resolve().name,
        recipe=recipe,
        metrics=metrics,
        seconds=_seconds(folder),
        records=records,
        changes=changes,
        behaviours=found,
        diagnosis=diagnose(path, observer=observer, found=found) if found is not None else None,
        starts=starts or _resolved(folder, records),
        gamed=gamed,
        parameters=parameters,
        missing=tuple(missing),
    )


def named_apart(views: Sequence[RunView]) -> list[str]:
    """A name for each run, with as much of its path as tells it from the others: `seed-1/run`, `seed-2/run`."""
    parts = [view.folder.path.resolve().parts for view in views]
    for depth in range(1, max(len(one) for one in parts) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{view.name} ({i})" for i, view in enumerate(views, start=1)]


def _events(folder: RunFolder) -> tuple[Metrics, int | None, Gamed | None]:
    """The metrics of each step, how many parameters are trained, and where a learned reward was found to be gamed."""
    metrics: dict[int, Mapping[str, float | None]] = {}
    parameters: int | None = None
    gamed: Gamed | None = None
    for event in read(folder.events) if folder.events.is_file() else ():
        if event["event"] == "step":
            metrics[event["step"]] = event["metrics"]
        elif event["event"] == "parameters":
            parameters = event["policy_parameters"]
        elif event["event"] == "gaming":
            gamed = (event["step"], event["then"])
    return metrics, parameters, gamed


def _seconds(folder: RunFolder) -> dict[int, Mapping[str, float]]:
    if not folder.timings.is_file():
        return {}
    return {event["step"]: event["seconds"] for event in read(folder.timings) if event["event"] == "step"}


def _changes(folder: RunFolder) -> Changes | None:
    path = folder.evaluation / "comparison.json"
    if not path.is_file():
        return None
    try:
        return Changes.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path}: this is no comparison of this version: {type(error).__name__}: {error}.",
            fix="Delete it and go on with the run by --resume: it is made anew.",
        ) from error


def _missing(
    folder: RunFolder,
    recipe: Recipe,
    done: int,
    records: Mapping[int, Record],
    changes: Changes | None,
    starts: Sequence[object],
    gamed: Gamed | None,
) -> list[str]:
    out = []
    stopped = gamed is not None and gamed[1] == "stop"
    if done == 0:
        out.append("No step of training is finished, so there are no curves, no behaviours, no diagnosis and no completions yet.")
    elif gamed is not None and stopped:
        out.append(
            f"Training ended after step {gamed[0]} of {recipe.training.steps}, for the gap between the learned reward and the rule had "
            'opened ([rewards.gaming], then = "stop").'
        )
    elif done < recipe.training.steps:
        out.append(f"{done} of {recipe.training.steps} steps are done: the run is training, or was interrupted (go on with --resume).")
    if recipe.problems.held_out is None:
        out.append("The recipe has no held-out problems ([problems.held_out]), so there is no Pass@K, no Maj@K and no verdict.")
    elif changes is None:
        when = {0: "before", done if stopped else recipe.training.steps: "after"}
        there = [name for step, name in when.items() if step in records]
        told = f"only that {there[0]} training is" if there else "neither that before nor that after training is"
        out.append(f"The held-out problems are evaluated when training ends; {told} there, so there is no verdict yet.")
    elif changes.verdict is None:
        out.append("A verdict needs two held-out problems or more, and a K above 1.")
    if not folder.timings.is_file():
        out.append("There are no timings (timings.jsonl).")
    if not starts:
        out.append("The run did not record its environment (environment.json).")
    return out


def _resolved(folder: RunFolder, records: Mapping[int, Record]) -> list[Mapping[str, Any]]:
    """What a run without an environment tells all the same: the types, device and threads of its evaluations or its checkpoint."""
    for record in records.values():
        return [{name: record.settings[name] for name in ("device", "dtype", "threads") if name in record.settings}]
    for state in sorted(folder.checkpoints.glob("step-*/training/state.json"), reverse=True):
        found: Mapping[str, Any] = json.loads(state.read_text(encoding="utf-8"))["resolved"]
        return [found]
    return []
