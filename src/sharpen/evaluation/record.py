"""The file of an evaluation: its settings, its figures, and the graded samples of every problem, byte for byte the same for equal ones.

    {"breakdown": {"level": {"1": {...}}}, "format": 1, "results": [{"answers": ["18", null], "correct": [true, false], ...}],
     "settings": {"samples": 64, "seed": 0, ...}, "step": 0, "summary": {"pass_at_k": {"1": {"value": ...}}, ...}}

Times are not in it. A problem's `digest` tells whether it is the same problem under the same id.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharpen.errors import RunError, SharpenError
from sharpen.evaluation.summary import ProblemResult, Summary, by_group, summarise
from sharpen.records import Problem

FORMAT = 1
MATTERS = ("samples", "temperature", "top_p", "max_new_tokens", "template", "require_stop")
"""The settings in which two evaluations that are compared should agree."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """An evaluation as it is kept.

    Attributes:
        settings: whatever the results depend on, as plain values: model, problems, samples, seed, temperature, ...
        results: one a problem.
        digests: by problem id, of its prompt, ground truth and tests.
        summary: figures over all problems.
        breakdown: figures by level and by subject, as in `{"level": {"1": ..., "2": ...}}`.
        step: of training, 0 where there is none.
    """

    settings: Mapping[str, Any]
    results: Sequence[ProblemResult]
    digests: Mapping[str, str]
    summary: Summary
    breakdown: Mapping[str, Mapping[str, Summary]] = field(default_factory=dict)
    step: int = 0


def record(
    settings: Mapping[str, Any],
    problems: Iterable[Problem],
    results: Sequence[ProblemResult],
    ks: Sequence[int],
    *,
    seed: int,
    step: int = 0,
) -> Record:
    """Sum results up into a record.

    Args:
        settings: what they depend on, plain values.
        problems: what was evaluated.
        results: one a problem.
        ks: the K of Pass@K and Maj@K.
        seed: of the resampling.
        step: of training.
    """
    samples = settings["samples"]
    return Record(
        settings=settings,
        results=results,
        digests={problem.id: digest(problem) for problem in problems},
        summary=summarise(results, ks, seed=seed, expected_samples=samples),
        breakdown={
            name: {value: summarise(part, ks, seed=seed, expected_samples=samples) for value, part in parts.items()}
            for name, parts in by_group(results).items()
        },
        step=step,
    )


def digest(problem: Problem) -> str:
    """Sixteen hexadecimal digits that tell one problem from another, whatever their ids."""
    tests = repr(sorted(problem.meta.items())) if problem.kind == "code" else ""
    text = json.dumps([problem.prompt, problem.answer, problem.kind, tests])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def write(path: Path, kept: Record) -> None:
    """Write a record, whole or not at all; each problem is a line, so that files can be compared by eye."""
    head = {
        "format": FORMAT,
        "step": kept.step,
        "settings": dict(kept.settings),
        "summary": kept.summary.to_dict(),
        "breakdown": {name: {value: one.to_dict() for value, one in parts.items()} for name, parts in kept.breakdown.items()},
    }
    rows = ",\n".join(
        "    " + json.dumps(_row(result, kept.digests.get(result.problem_id)), sort_keys=True, ensure_ascii=False)
        for result in kept.results
    )
    text = json.dumps(head, indent=2, sort_keys=True, ensure_ascii=False).removesuffix("\n}") + f',\n  "results": [\n{rows}\n  ]\n}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".writing")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def read(path: Path) -> Record:
    """Read a record.

    Raises:
        RunError: no such file, or one that is no evaluation.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        results = [_result(row) for row in data["results"]]
        breakdown = {name: {value: Summary.from_dict(one) for value, one in parts.items()} for name, parts in data["breakdown"].items()}
        return Record(
            settings=data["settings"],
            results=results,
            digests={row["problem_id"]: row["digest"] for row in data["results"]},
            summary=Summary.from_dict(data["summary"]),
            breakdown=breakdown,
            step=data["step"],
        )
    except FileNotFoundError:
        raise RunError(f"{path}: there is no evaluation.", fix="Give the folder of an evaluation or of a run.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: this is no evaluation of this version: {type(error).__name__}: {error}.", fix="Evaluate the model again."
        ) from error


def differences(before: Record, after: Record) -> list[str]:
    """The settings in which two evaluations differ and should not, a sentence each.

    Raises:
        SharpenError: a problem has the same id in both and is another one.
    """
    other = [name for name, value in before.digests.items() if after.digests.get(name, value) != value]
    if other:
        shown = ", ".join(f"`{name}`" for name in other[:10]) + (f" and {len(other) - 10} more" if len(other) > 10 else "")
        raise SharpenError(
            f"{len(other)} problems have the same id before and after, but another prompt, ground truth or tests: {shown}.",
            fix="Evaluate both models on the same problem file.",
        )
    return [
        f"{name} is {before.settings.get(name)} before and {after.settings.get(name)} after"
        for name in MATTERS
        if before.settings.get(name) != after.settings.get(name)
    ]


def _row(result: ProblemResult, marked: str | None) -> dict[str, Any]:
    return {
        "problem_id": result.problem_id,
        "digest": marked,
        "groups": dict(result.groups),
        "answers": list(result.answers),
        "correct": list(result.correct),
        "finished": list(result.finished),
        "lengths": list(result.lengths),
    }


def _result(row: Mapping[str, Any]) -> ProblemResult:
    return ProblemResult(
        problem_id=row["problem_id"],
        answers=tuple(row["answers"]),
        correct=tuple(row["correct"]),
        finished=tuple(row["finished"]),
        lengths=tuple(row["lengths"]),
        groups=row["groups"],
    )
