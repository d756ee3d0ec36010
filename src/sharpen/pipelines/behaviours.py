"""Behaviours over a run, from its folder: one pass over its completions, and over those of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharpen.errors import RunError
from sharpen.evaluation import record
from sharpen.evaluation.behaviours import NUMBERS, TEXTS, Behaviours, Figure, Place, figures, sums_of_numbers, sums_of_texts
from sharpen.evaluation.record import Record
from sharpen.recipe import Recipe, load_recipe
from sharpen.rewards.functions import boxed, format_think
from sharpen.tracking import completions
from sharpen.tracking.events import read
from sharpen.tracking.observer import Observer, Silent
from sharpen.training.run_folder import RunFolder

Looked = tuple[list[Figure], int, int, bool]
Kept = dict[tuple[Path, int, int], Looked]
"""What was read of files of completions, by path, size and time of change: a run that is watched need not be read anew for each step."""

LIMIT = 512
"""Completions of a step whose text is looked at; figures without text are of all."""


def behaviours(
    path: Path,
    *,
    base: Path | None = None,
    language: str | None = None,
    limit: int = LIMIT,
    observer: Observer | None = None,
    kept: Kept | None = None,
) -> Behaviours:
    """Measure the completions of a run, step by step, and those of its held-out problems, before training first.

    Args:
        path: a run's folder, or the folder of an evaluation.
        base: the folder of an evaluation that stands for the model before training, in place of the run's own.
        language: the target by its two letters; None: that of the recipe's reward `language`, else English.
        limit: at most so many completions a step have their text looked at, evenly spread; the notes tell where.
        observer: who watches.
        kept: of earlier calls with the same settings; files in it are not read again, and what is read is added.

    Raises:
        RunError: no run and no evaluation.
        RewardError: an unknown language.
    """
    observer = observer or Silent()
    folder = RunFolder(path)
    recipe = load_recipe(folder.recipe) if folder.recipe.is_file() else None
    reading = _Reading(language=language or _language(recipe), formats=_formats(recipe), limit=limit, kept={} if kept is None else kept)
    if language is None and _target(recipe) is None:
        reading.notes.append("Other language: other than English, for the recipe names none; choose one by --language.")
    found: list[Figure] = []
    if recipe is None:
        found += _evaluation(reading, path, 0)
    else:
        found += _run(reading, folder, observer)
        if base is None:
            found += _evaluations(reading, folder)
    if base is not None:
        found += _evaluation(reading, base, 0)
    return Behaviours(figures=tuple(found), notes=(*reading.notes, *reading.told()))


@dataclass
class _Reading:
    """How files are read, and what there is to tell of it."""

    language: str
    formats: Sequence[Callable[[str], bool]]
    limit: int
    kept: Kept
    notes: list[str] = field(default_factory=list)
    looked: int = 0
    of: int = 0
    cut: int = 0

    def file(self, path: Path, place: Place, step: int, *, formats: Sequence[Callable[[str], bool]], sampled: bool = True) -> list[Figure]:
        """The figures of one file of completions."""
        stat = path.stat()
        key = (path, stat.st_size, stat.st_mtime_ns)
        if key not in self.kept:
            self.kept[key] = self._read(path, place, step, formats=formats, sampled=sampled)
        found, looked, count, cut = self.kept[key]
        self.looked, self.of, self.cut = self.looked + looked, self.of + count, self.cut + cut
        return found

    def _read(self, path: Path, place: Place, step: int, *, formats: Sequence[Callable[[str], bool]], sampled: bool) -> Looked:
        rows = completions.read_columns(path, NUMBERS)
        count = len(rows)
        chosen = None if count <= self.limit else [i * count // self.limit for i in range(self.limit)]
        texts = completions.read_columns(path, TEXTS, chosen)
        sums = sums_of_numbers(rows, groups=place == "training")
        sums |= sums_of_texts(texts, language=self.language, formats=formats, sampled=sampled)
        return figures(sums, place, step), len(texts), count, chosen is not None

    def told(self) -> Iterator[str]:
        """What was sampled."""
        if self.cut:
            yield (
                f"Text was read of {self.looked:,} of {self.of:,} completions, {self.limit} a step or evaluation, evenly spread; lengths, "
                "accuracy and rewards are of all. Read more by --limit."
            )


def _run(reading: _Reading, folder: RunFolder, observer: Observer) -> list[Figure]:
    done = {event["step"]: event["metrics"] for event in read(folder.events) if event["event"] == "step"}
    kept = [step for step in completions.steps(folder.completions) if step in done]  # a step being written has no event yet
    if not done:
        raise RunError(f"run {folder.path}: no step of training is finished.", fix="Wait for the first one.")
    if missing := sorted(set(done) - set(kept)):
        reading.notes.append(f"The completions of {len(missing)} of {len(done)} steps are not there: {_spans(missing)}.")
    if replaced := int(sum(metrics.get("replaced_groups") or 0 for metrics in done.values())):
        reading.notes.append(f"{replaced:,} groups without variance were sampled anew (rollout.refills) and are in no figure.")
    found: list[Figure] = []
    observer.phase("reading completions", len(kept), "steps")
    for step in kept:
        found += reading.file(completions.path_of(folder.completions, step), "training", step, formats=reading.formats)
        observer.advance(1)
    return found


def _evaluations(reading: _Reading, folder: RunFolder) -> list[Figure]:
    """Those before, on the way and after."""
    found: dict[int, list[Figure]] = {}
    for path, kept in evaluations(folder, reading.notes):
        found[kept.step] = reading.file(path, "held-out", kept.step, formats=reading.formats, sampled=kept.settings["temperature"] > 0)
    if 0 not in found:
        reading.notes.append("There is no evaluation of the model before training; give one by --base.")
    return [figure for step in sorted(found) for figure in found[step]]


def evaluations(folder: RunFolder, notes: list[str]) -> Iterator[tuple[Path, Record]]:
    """The evaluations of a run, each with its file of completions; a note is added for one that cannot be read."""
    for path in sorted(folder.evaluation.glob("*.parquet")):
        try:
            yield path, record.read(path.with_suffix(".json"))
        except RunError as error:
            notes.append(f"Left out: {error.what}")


def _evaluation(reading: _Reading, path: Path, step: int) -> list[Figure]:
    """The one that `sharpen eval` wrote, or that of a run before training."""
    file = path / "completions.parquet"
    if not file.is_file():
        raise RunError(
            f"{path}: there is neither a run (recipe.toml) nor an evaluation (completions.parquet).",
            fix="Give the folder of a run, such as runs/quickstart, or the one that `sharpen eval` wrote.",
        )
    settings = record.read(path / "evaluation.json").settings
    formats = reading.formats or (_THINKS if settings["template"]["name"] == "r1_zero" else ())
    return reading.file(file, "held-out", step, formats=formats, sampled=settings["temperature"] > 0)


def _target(recipe: Recipe | None) -> str | None:
    """The language that the recipe rewards."""
    parts = recipe.rewards.functions if recipe is not None else []
    return next((str(part.parameters.get("target", "en")) for part in parts if part.function == "language"), None)


def _language(recipe: Recipe | None) -> str:
    return _target(recipe) or "en"


def _thinks(text: str) -> bool:
    return format_think(completions=[text])[0] == 1.0


def _boxes(text: str) -> bool:
    return boxed(completions=[text])[0] == 1.0


_THINKS: tuple[Callable[[str], bool], ...] = (_thinks,)


def _formats(recipe: Recipe | None) -> tuple[Callable[[str], bool], ...]:
    """What the recipe rewards or its template asks for."""
    if recipe is None:
        return ()
    named: dict[str, dict[str, Any]] = {part.function: part.parameters for part in recipe.rewards.functions}
    found: list[Callable[[str], bool]] = []
    if "format_think" in named:
        opened = bool(named["format_think"].get("opened", False))
        found.append(lambda text: format_think(completions=[text], opened=opened)[0] == 1.0)
    elif recipe.template.name == "r1_zero":
        found.append(_thinks)
    if "boxed" in named:
        found.append(_boxes)
    return tuple(found)


def _spans(steps: Sequence[int]) -> str:
    """`1 to 4, 7`."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in spans[:10]]
    return ", ".join(shown) + (" and more" if len(spans) > 10 else "")
