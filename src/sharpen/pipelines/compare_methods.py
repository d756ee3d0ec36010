"""Methods side by side: the same recipe, seeds, samples and updates, one run for each method and seed.

Each run is a process of its own with its own folder, so that a comparison that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from sharpen import bundled
from sharpen.errors import RecipeError, RunError, nearest
from sharpen.recipe import Section, load_recipe
from sharpen.tracking import events
from sharpen.tracking.observer import Observer, Silent
from sharpen.training.run_folder import RunFolder

T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t at 97.5 % for n seeds, n - 1 degrees of freedom."""


class ClaimSettings(Section):
    """Something that the runs are to show, `[claims.NAME]`."""

    better: str = Field(description="the label whose runs end higher, if the claim holds")
    than: str = Field(description="the label that it is compared with, seed by seed")
    metric: str = Field("pass@1", description="of held-out problems after the last step: pass@K, maj@K, finished, mean_length")


class CompareSettings(Section):
    """A comparison: one recipe, and what each method changes in it."""

    recipe: str = Field(description="the recipe of every run: a file beside this one, or one that comes with sharpen")
    seeds: list[int] = Field([1, 2, 3], min_length=1, description="one run of each method for each")
    jobs: int = Field(1, ge=1, description="runs at once; each gets its share of the CPU's cores")
    output: str = Field("runs/compare", description="the folder of all runs")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of every run, over the recipe's")
    methods: dict[str, dict[str, Any]] = Field(min_length=1, description="by label, the settings of each method, over those")
    claims: dict[str, ClaimSettings] = Field(default_factory=dict, description="by name, what the runs are to show")

    @model_validator(mode="after")
    def _labels(self) -> CompareSettings:
        for name, claim in self.claims.items():
            for key in ("better", "than"):
                if (label := getattr(claim, key)) not in self.methods:
                    raise ValueError(f"claims.{name}.{key}: there is no method '{label}'.{nearest(label, self.methods)}")
        return self


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A method's runs.

    Attributes:
        label: the method's.
        steps: at which held-out problems were measured; 0 is before training.
        values: by metric (`pass@1`, `maj@16`, ...), one row a seed, one value a step.
        totals: by name (completions, tokens, updates, value_parameters, seconds), one value a seed.
    """

    label: str
    steps: list[int]
    values: dict[str, list[list[float]]]
    totals: dict[str, list[float]] = field(default_factory=dict)

    def mean(self, metric: str) -> list[float]:
        """The mean over seeds at each step."""
        rows = self.values[metric]
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)]

    def margin(self, metric: str) -> list[float]:
        """Half the 95 % interval of the mean over seeds at each step (Student's t); NaN for one seed."""
        return [margin(column) for column in zip(*self.values[metric], strict=True)]


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A claim, and what the runs say of it.

    Attributes:
        name: the claim's.
        better: the label that is to end higher.
        than: the other one.
        metric: that is compared.
        differences: better − than after the last step, one a seed.
        mean: of these.
        margin: half its 95 % interval over seeds (Student's t); NaN for one seed.
    """

    name: str
    better: str
    than: str
    metric: str
    differences: list[float]
    mean: float
    margin: float

    @property
    def word(self) -> str:
        """`holds` where the whole interval is above 0, `contradicted` where it is below, else `inconclusive`."""
        if self.mean - self.margin > 0:
            return "holds"
        return "contradicted" if self.mean + self.margin < 0 else "inconclusive"


def judged(settings: CompareSettings, curves: Sequence[Curve]) -> list[Claimed]:
    """What the runs say of each claim; written to `claims.json` in the output folder."""
    found = [claimed(name, claim, curves) for name, claim in settings.claims.items()]
    rows = [vars(one) | {"margin": None if math.isnan(one.margin) else one.margin, "word": one.word} for one in found]
    RunFolder(Path(settings.output)).write_json(Path(settings.output) / "claims.json", rows)
    return found


def claimed(name: str, claim: ClaimSettings, curves: Sequence[Curve]) -> Claimed:
    """Compare two labels' runs seed by seed, after their last step.

    Raises:
        RecipeError: the runs have no such metric.
    """
    found = {curve.label: curve for curve in curves}
    better, than = found[claim.better], found[claim.than]
    if claim.metric not in better.values:
        raise RecipeError(
            f"claims.{name}.metric: the runs have no '{claim.metric}'.{nearest(claim.metric, better.values)}",
            fix=f"Give one of {', '.join(better.values)}.",
        )
    rows = zip(better.values[claim.metric], than.values[claim.metric], strict=True)
    differences = [one[-1] - other[-1] for one, other in rows]
    mean = sum(differences) / len(differences)
    return Claimed(name=name, **claim.model_dump(), differences=differences, mean=mean, margin=margin(differences))


def margin(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean of independent values, by Student's t; NaN for fewer than two."""
    n = len(values)
    if n < 2:
        return math.nan
    mean = sum(values) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return T_95.get(n, 1.96 + 2.4 / (n - 1)) * deviation / math.sqrt(n)


def load_comparison(path: str | Path) -> CompareSettings:
    """Read a comparison's TOML file; RecipeError names every fault."""
    path = Path(path)
    try:
        return CompareSettings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise RecipeError(f"comparison {path}: cannot be read: {error}.", fix="Give a file such as recipes/compare.toml.") from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"comparison {path}: not valid TOML: {error}.", fix="Mend the line that the message names.") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        known = ", ".join(CompareSettings.model_fields)
        raise RecipeError(f"comparison {path}: {faults}.", fix=f"Its keys are {known}.") from error


def compare_methods(settings: CompareSettings, *, path: Path, observer: Observer | None = None) -> list[Curve]:
    """Run every method with every seed, and gather their curves; runs that are finished are not run again.

    Args:
        settings: the comparison.
        path: its file; the recipe is looked for beside it.
        observer: who watches; told of each run that ends.

    Raises:
        RecipeError: a method's settings are not valid.
        RunError: a run failed; the others are kept.
    """
    observer = observer or Silent()
    beside = path.parent / settings.recipe
    recipe = beside if beside.is_file() else bundled.find_recipe(Path(settings.recipe))
    out = Path(settings.output)
    threads = max(1, (os.cpu_count() or 1) // settings.jobs)
    runs = [
        (label, seed, [*flat(settings.settings), *flat(changes), f"seed={seed}", f"training.threads={threads}"])
        for seed in settings.seeds
        for label, changes in settings.methods.items()
    ]
    for _, _, overrides in runs:
        load_recipe(recipe, overrides)
    observer.phase("comparing", len(runs))
    with ThreadPoolExecutor(settings.jobs) as pool:
        waiting = [pool.submit(_run, recipe, out / label / f"seed-{seed}", overrides, observer) for label, seed, overrides in runs]
        done, _ = wait(waiting, return_when=FIRST_EXCEPTION)
        failed = [one.exception() for one in done if one.exception() is not None]
        if failed:
            pool.shutdown(cancel_futures=True)
            raise failed[0] if isinstance(failed[0], BaseException) else AssertionError
    curves = [curve(label, [out / label / f"seed-{seed}" for seed in settings.seeds]) for label in settings.methods]
    RunFolder(out).write_json(out / "curves.json", [vars(one) for one in curves])
    return curves


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """A table of settings as overrides, `section.field=value`; a list is one value."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_inline(value)}"


def _inline(value: Any) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else json.dumps(value)


def _run(recipe: Path, folder: Path, overrides: list[str], observer: Observer) -> None:
    """One run to its end, in a process of its own; its log lies beside its folder."""
    if not (folder / "evaluation" / "comparison.json").is_file():
        log = folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        resume = ["--resume"] if (folder / "recipe.toml").is_file() else []
        command = [sys.executable, "-m", "sharpen.cli", "train", str(recipe), f"output={json.dumps(str(folder))}", *overrides, *resume]
        with log.open("a", encoding="utf-8") as file:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-5:])
            raise RunError(f"the run {folder} failed with exit code {code}:\n{tail}", fix=f"See {log}; then run the comparison again.")
    observer.advance(1)


def curve(label: str, folders: Sequence[Path]) -> Curve:
    """A method's runs, read from their folders."""
    steps: list[int] = []
    values: dict[str, list[list[float]]] = {}
    totals: dict[str, list[float]] = {}
    for folder in folders:
        found = [
            (0, _before(folder)),
            *((e["step"], e["figures"]) for e in events.read(folder / "events.jsonl") if e["event"] == "evaluation"),
        ]
        steps = [step for step, _ in found]
        rows = [_metrics(figures) for _, figures in found]
        for name in rows[0]:
            values.setdefault(name, []).append([row[name] for row in rows])
        for name, total in _totals(folder).items():
            totals.setdefault(name, []).append(total)
    return Curve(label=label, steps=steps, values=values, totals=totals)


def _before(folder: Path) -> dict[str, Any]:
    before: dict[str, Any] = json.loads((folder / "evaluation" / "comparison.json").read_text(encoding="utf-8"))["before"]
    return before


def _metrics(figures: Mapping[str, Any]) -> dict[str, float]:
    by_k = {f"{name}@{k}": e["value"] for name in ("pass", "maj") for k, e in figures[f"{name}_at_k"].items()}
    return by_k | {name: figures[name]["value"] for name in ("finished", "mean_length")}


def _totals(folder: Path) -> dict[str, float]:
    """What the run spent."""
    logged = list(events.read(folder / "events.jsonl"))
    last = next(e["metrics"] for e in reversed(logged) if e["event"] == "step")
    parameters = next(e for e in logged if e["event"] == "parameters")
    seconds = [e["seconds"]["step"] for e in events.read(folder / "timings.jsonl") if e["event"] == "step"]
    return {
        "updates": last["updates"],
        "completions": last["total_completions"],
        "value_parameters": parameters["value_parameters"],
        "seconds": sum(seconds),
    }
