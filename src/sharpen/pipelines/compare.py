"""Comparing two evaluations of the same problems, from their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sharpen.errors import RecipeError, RunError
from sharpen.evaluation import record
from sharpen.evaluation.changes import Changes, changes
from sharpen.evaluation.verdict import MARGIN
from sharpen.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two evaluations, and what is between them.

    Attributes:
        changes: figures, verdict, gap, problems.
        before: the file that the first was read from.
        after: the file of the second.
    """

    changes: Changes
    before: Path
    after: Path


def compare_evaluations(
    before: Path, after: Path | None = None, *, ks: Sequence[int] | None = None, margin: float = MARGIN, seed: int = 0
) -> Compared:
    """Compare two models on the same problems.

    Args:
        before: the folder of an evaluation, an `evaluation.json`, or a run's folder. Alone, a run's folder, whose model is compared before
            and after training.
        after: the same; of a run's folder the model after training is meant, in both places.
        ks: the K of Pass@K and Maj@K; None: powers of 2, and the number of samples.
        margin: the change of Pass@K at the largest K that is taken for none, 0.05 for 5 points.
        seed: of the resampling.

    Raises:
        SharpenError: a file that is missing or no evaluation, problems that differ, or settings that cannot be used.
    """
    first, second = _files(before, after)
    old, new = record.read(first), record.read(second)
    told = record.differences(old, new)
    samples = min(old.summary.samples, new.summary.samples)
    wanted = list(ks) if ks is not None else powers(samples)
    if not wanted or any(not 1 <= k <= samples for k in wanted):
        raise RecipeError(f"K: expected numbers from 1 to samples = {samples}, got {wanted}.", fix="Leave --k out for powers of 2.")
    expected = samples if old.summary.samples == new.summary.samples else None
    found = changes(old.results, new.results, wanted, margin=margin, seed=seed, expected_samples=expected, differences=told)
    return Compared(changes=found, before=first, after=second)


def powers(samples: int) -> list[int]:
    """1, 2, 4, ... up to the number of samples, and that number: `powers(24)` is [1, 2, 4, 8, 16, 24]."""
    return sorted({1 << i for i in range(samples.bit_length())} | {samples})


def _files(before: Path, after: Path | None) -> tuple[Path, Path]:
    if after is not None:
        return _file(before), _file(after)
    run = RunFolder(before).evaluation
    if not (run / "before.json").is_file() or not (run / "after.json").is_file():
        raise RunError(
            f"{before}: there is no run here that was evaluated before and after training.",
            fix="Give the folder of a run that has ended and has held-out problems, or two evaluations.",
        )
    return run / "before.json", run / "after.json"


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    places = [path / "evaluation.json", RunFolder(path).evaluation / "after.json"]
    for place in places:
        if place.is_file():
            return place
    unfinished = " The evaluation in it was interrupted: the same `sharpen eval` goes on with it." if (path / "parts").is_dir() else ""
    raise RunError(
        f"{path}: there is no evaluation; looked for {places[0].name} and evaluation/{places[1].name}.{unfinished}",
        fix="Give the folder that `sharpen eval` wrote to, or that of a run with held-out problems.",
    )
