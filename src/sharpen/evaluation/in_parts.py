"""An evaluation in parts, each kept as soon as it is done: one that was killed goes on at the part it was in.

A part is a fixed number of whole problems, sampled by one call of the engine. The last bits of a completion's log-probabilities depend on
what it is batched with, so the parts are the same whether or not an evaluation was interrupted; then so is every bit of the result.

    parts/settings.json         what the parts belong to
    parts/part-00000.parquet    the completions of the first part, graded
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sharpen.evaluation import record
from sharpen.evaluation.evaluate import evaluate
from sharpen.evaluation.record import Record
from sharpen.evaluation.summary import ProblemResult
from sharpen.folders import saving
from sharpen.grading import SandboxKind
from sharpen.models.manifest import sync
from sharpen.records import Problem, groups_of
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.tracking import completions

ROWS = 8
"""A part has about so many times as many completions as are decoded at once: a part's last rows run half empty, so fewer parts are faster,
and more of them lose less when killed."""

GO_ON = "Make room there, and start it again as before (a run with --resume): it goes on, and what is kept is not sampled again."


def evaluate_in_parts(
    rollout: Rollout,
    problems: Sequence[Problem],
    samples: int,
    sampling: Sampling,
    *,
    folder: Path,
    settings: Mapping[str, Any],
    max_rows: int,
    stream: str = "evaluation",
    require_stop: bool = True,
    sandbox: SandboxKind = "bubblewrap",
    on_progress: Callable[[int], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> list[ProblemResult]:
    """Sample and grade as `evaluate` does, part by part; what is in the folder already is not done again.

    Args:
        rollout: samples.
        problems: P of them, with distinct ids.
        samples: K, of each.
        sampling: limits and temperature.
        folder: of the parts. It stays until `finish`.
        settings: what the results depend on, plain values; parts of other settings are thrown away.
        max_rows: completions decoded at once.
        stream: as in `evaluate`.
        require_stop: as in `evaluate`.
        sandbox: as in `evaluate`.
        on_progress: called with the number of completions that are done, those of earlier parts included.
        notice: told of parts that were found.

    Returns:
        One result a problem, in their order.

    Raises:
        RunError: a part cannot be written, say because the disk is full. The parts before it are kept.
    """
    total = len(problems) * samples
    with saving("the settings of an evaluation", folder / "settings.json", kept="Nothing has been sampled yet.", fix=GO_ON):
        claim(folder, settings)
    tell = on_progress or (lambda count: None)
    by_id = {problem.id: problem for problem in problems}
    results: list[ProblemResult] = []
    found = 0
    for number, (start, stop) in enumerate(cut(len(problems), samples, max_rows)):
        path = folder / f"part-{number:05d}.parquet"
        rows = _rows(path, (stop - start) * samples)
        if rows is None:
            done = evaluate(
                rollout, problems[start:stop], samples, sampling,
                stream=stream, first=start, require_stop=require_stop, sandbox=sandbox, on_progress=tell,
            )  # fmt: skip
            kept = (
                f"{start * samples:,} of {total:,} completions are kept in {folder}; those of this part are sampled again, the same ones."
            )
            with saving("graded completions", path, kept=kept, fix=GO_ON):
                completions.write(path, done.groups, done.scores)
            results += done.results
            continue
        found += len(rows)
        tell(len(rows))
        results += _results(rows, by_id)
    if found and notice is not None:
        notice(f"{found:,} of {total:,} completions had been sampled before, and are taken over")
    return results


def finish(folder: Path, target: Path, completions_file: Path, kept: Record) -> None:
    """Write an evaluation's two files: the parts put together, one row group a part, and then its record as `target`.

    Each is whole or not there, and both are on the disk before the parts are discarded.

    Args:
        folder: of the parts.
        target: of the record, as `evaluation.json`.
        completions_file: of the completions.
        kept: the record.

    Raises:
        RunError: one of them cannot be written; the parts stay, and nothing is lost.
    """
    stay = f"All completions are kept in {folder}."
    with saving("the completions", completions_file, kept=stay, fix=GO_ON):
        join(folder, completions_file)
        sync(completions_file)
    with saving("the figures", target, kept=stay, fix=GO_ON):
        record.write(target, kept)
        sync(target)
    discard(folder)


def join(folder: Path, target: Path, metadata: Mapping[bytes, bytes] | None = None) -> None:
    """Put the parts together into one file, one row group a part; whole or not at all. The parts stay.

    Args:
        folder: of the parts.
        target: the file.
        metadata: of the file, where it is not that of the first part.
    """
    import pyarrow.parquet as pq

    parts = sorted(folder.glob("part-*.parquet"))
    temporary = target.with_suffix(".writing")
    schema = pq.read_schema(parts[0])
    schema = schema if metadata is None else schema.with_metadata(dict(metadata))
    with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(pq.read_table(part).replace_schema_metadata(schema.metadata))
    os.replace(temporary, target)


def discard(folder: Path) -> None:
    """Remove the parts, where there are any."""
    shutil.rmtree(folder, ignore_errors=True)


def cut(problems: int, samples: int, max_rows: int) -> list[tuple[int, int]]:
    """The parts as ranges of problems, all about equally long: `cut(20, 64, 128)` is [(0, 10), (10, 20)]."""
    count = min(problems, math.ceil(problems * samples / (ROWS * max_rows)))
    ends = [problems * i // count for i in range(count + 1)]
    return list(pairwise(ends))


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make the folder for these settings; parts of others go."""
    path, text = folder / "settings.json", json.dumps(settings, indent=2, sort_keys=True) + "\n"
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    discard(folder)
    folder.mkdir(parents=True)
    temporary = path.with_suffix(".writing")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _rows(path: Path, expected: int) -> list[dict[str, Any]] | None:
    """The rows of a part; None where it has not been done, or was damaged when the machine went down."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return None
    try:
        rows = pq.read_table(path, columns=["problem_id", "answer", "correct", "finish_reason", "length"]).to_pylist()
    except (pa.ArrowException, OSError):
        return None
    return rows if len(rows) == expected else None


def _results(rows: Sequence[Mapping[str, Any]], by_id: Mapping[str, Problem]) -> list[ProblemResult]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["problem_id"], []).append(row)
    return [
        ProblemResult(
            problem_id=name,
            answers=tuple(row["answer"] for row in members),
            correct=tuple(row["correct"] for row in members),
            finished=tuple(row["finish_reason"] == "stop" for row in members),
            lengths=tuple(row["length"] for row in members),
            groups=groups_of(by_id[name]),
        )
        for name, members in found.items()
    ]
