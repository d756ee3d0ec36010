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
from sharpen.evaluation.intervals import student
from sharpen.recipe import Recipe, Section, differences, load_recipe
from sharpen.tracking import events
from sharpen.tracking.observer import Observer, Silent
from sharpen.training.run_folder import RunFolder

SCALARS = ("finished", "mean_length")
"""What is measured beside Pass@K and Maj@K."""

WITHOUT_EFFECT = ("output", "training.threads", "checkpoint.", "tracking.")
"""Keys that do not change what a run learns, but for the last bits."""

OWN = {"seed": "by seeds", "output": "by output, label and seed", "training.threads": "by jobs"}
"""Keys of a run that a comparison sets, and by what."""


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
    baseline: str | None = Field(None, description="the label that every other one is compared with, seed by seed")
    claims: dict[str, ClaimSettings] = Field(default_factory=dict, description="by name, what the runs are to show")

    @model_validator(mode="after")
    def _runs(self) -> CompareSettings:
        """Each run has a seed, a folder and threads of its own, and is counted once."""
        if twice := sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1}):
            raise ValueError(f"seeds: {twice[0]} is there twice, and the same run counted twice would make intervals too narrow")
        for label in self.methods:
            if not label.strip() or Path(label).is_absolute() or ".." in Path(label).parts:
                raise ValueError(f"methods: expected labels that name a folder within the output, got '{label}'")
        for where, table in {"settings": self.settings, **{f"methods.{label}": own for label, own in self.methods.items()}}.items():
            given = {override.partition("=")[0] for override in flat(table)}
            if taken := [f"{key} ({by})" for key, by in OWN.items() if key in given]:
                raise ValueError(f"{where}: the comparison sets {', '.join(taken)} itself; leave it out")
        return self

    @model_validator(mode="after")
    def _labels(self) -> CompareSettings:
        named = {f"claims.{name}.{key}": getattr(claim, key) for name, claim in self.claims.items() for key in ("better", "than")}
        for key, label in {"baseline": self.baseline, **named}.items():
            if label is not None and label not in self.methods:
                raise ValueError(f"{key}: there is no method '{label}'.{nearest(label, self.methods)}")
        for name, claim in self.claims.items():
            if claim.better == claim.than:
                raise ValueError(f"claims.{name}: 'better' and 'than' are both '{claim.than}'; compare it with another method")
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
class Paired:
    """Two labels' runs compared seed by seed: a claim, or a label against the baseline.

    Attributes:
        name: the claim's; of a label against the baseline, the label.
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
        """`holds` where the whole interval is above 0, `contradicted` where it is below, else `inconclusive`, as for one seed."""
        if self.mean - self.margin > 0:
            return "holds"
        return "contradicted" if self.mean + self.margin < 0 else "inconclusive"


def judged(settings: CompareSettings, curves: Sequence[Curve]) -> list[Paired]:
    """What the runs say of each claim; written to `claims.json` in the output folder."""
    found = [paired(name, curves, better=claim.better, than=claim.than, metric=claim.metric) for name, claim in settings.claims.items()]
    return _written(settings, "claims.json", found)


def against_baseline(settings: CompareSettings, curves: Sequence[Curve], metrics: Sequence[str]) -> list[Paired]:
    """Each other label less the baseline, in each of these metrics; written to `differences.json` in the output folder."""
    others = [label for label in settings.methods if label != settings.baseline]
    if settings.baseline is None:
        return []
    found = [paired(label, curves, better=label, than=settings.baseline, metric=metric) for label in others for metric in metrics]
    return _written(settings, "differences.json", found)


def paired(name: str, curves: Sequence[Curve], *, better: str, than: str, metric: str) -> Paired:
    """Compare two labels' runs seed by seed, after their last step."""
    found = {curve.label: curve.values[metric] for curve in curves}
    by_seed = [one[-1] - other[-1] for one, other in zip(found[better], found[than], strict=True)]
    mean = sum(by_seed) / len(by_seed)
    return Paired(name=name, better=better, than=than, metric=metric, differences=by_seed, mean=mean, margin=margin(by_seed))


def _written(settings: CompareSettings, name: str, found: list[Paired]) -> list[Paired]:
    rows = [vars(one) | {"margin": None if math.isnan(one.margin) else one.margin, "word": one.word} for one in found]
    RunFolder(Path(settings.output)).write_json(Path(settings.output) / name, rows)
    return found


def margin(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean of independent values, by Student's t; NaN for fewer than two."""
    n = len(values)
    if n < 2:
        return math.nan
    mean = sum(values) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return student(n - 1) * deviation / math.sqrt(n)


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
        RecipeError: a method's settings are not valid, or a claim's metric is not measured; nothing is run.
        RunError: a finished run had other settings, and nothing is run; or a run failed, and the others are kept.
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
    recipes = {(label, seed): load_recipe(recipe, overrides) for label, seed, overrides in runs}
    _check_metrics(settings, {label: one for (label, _), one in recipes.items()})
    for (label, seed), one in recipes.items():
        _check_finished(out / label / f"seed-{seed}", one)
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


def _check_metrics(settings: CompareSettings, recipes: Mapping[str, Recipe]) -> None:
    """Refuse, before any run, a claim about what the runs will not measure."""
    for name, claim in settings.claims.items():
        for label in (claim.better, claim.than):
            known = [f"{kind}@{k}" for kind in ("pass", "maj") for k in recipes[label].evaluation.ks] + list(SCALARS)
            if claim.metric not in known:
                raise RecipeError(
                    f"claims.{name}.metric: the runs of '{label}' measure no '{claim.metric}'.{nearest(claim.metric, known)}",
                    fix=f"Give one of {', '.join(known)}; evaluation.ks says which K there are.",
                )


def _check_finished(folder: Path, recipe: Recipe) -> None:
    """Refuse a finished run of other settings, whose curve would be shown as that of these."""
    if not _is_finished(folder):
        return
    changed = [key for key in differences(load_recipe(RunFolder(folder).recipe), recipe) if not key.startswith(WITHOUT_EFFECT)]
    if changed:
        raise RunError(
            f"the run {folder} is finished, and its settings differ from those asked for now: {', '.join(changed)}.",
            fix="Give the same settings, or another output; or delete the folder, and it is run again.",
        )


def _is_finished(folder: Path) -> bool:
    return (folder / "evaluation" / "comparison.json").is_file()


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
        return "{" + ", ".join(f"{_quoted(key)} = {_inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else str(value)  # numbers, infinities and dates


def _quoted(text: str) -> str:
    """A text in TOML: JSON's, with characters beyond the first plane as they are, for TOML knows no surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _run(recipe: Path, folder: Path, overrides: list[str], observer: Observer) -> None:
    """One run to its end, in a process of its own; its log lies beside its folder."""
    if not _is_finished(folder):
        log = folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        resume = ["--resume"] if (folder / "recipe.toml").is_file() else []
        command = [sys.executable, "-m", "sharpen.cli", "train", str(recipe), f"output={_quoted(str(folder))}", *overrides, *resume]
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
    return by_k | {name: figures[name]["value"] for name in SCALARS}


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
