"""The completions of a step in Parquet, with rewards and their parts: one row a completion."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharpen.errors import RunError
from sharpen.records import Group, Scores, groups_of


def path_of(folder: Path, step: int) -> Path:
    """The file of a step: `completions/step-000003.parquet`."""
    return folder / f"step-{step:06d}.parquet"


Advantages = Sequence[Sequence[Sequence[float] | None]]
"""By group and completion, one a token; None of a completion that training did not look at."""


def write(path: Path, groups: Sequence[Group], scores: Scores, advantages: Advantages | None = None) -> None:
    """Write groups and their scores; a file cut short is never seen under this name.

    Columns: group_id, problem_id, level and subject (null where the problem has none), index, prompt, completion, answer, ground_truth,
    correct, reward (null where unscorable), reward/NAME for each part, log/NAME for what reward functions wrote down, finish_reason,
    length (tokens), tokens, sampling_logprobs (nats), and advantages (one a token) where they are given.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def value(tensor: Any, p: int, i: int) -> float | None:
        number = float(tensor[p, i])
        return None if number != number else number

    places = [(p, i) for p, group in enumerate(groups) for i in range(len(group.completions))]
    completions = [groups[p].completions[i] for p, i in places]
    belongs = [groups_of(groups[p].problem) for p, _ in places]
    columns: dict[str, Any] = {
        "group_id": pa.array([groups[p].id for p, _ in places], pa.string()),
        "problem_id": pa.array([groups[p].problem.id for p, _ in places], pa.string()),
        "level": pa.array([found.get("level") for found in belongs], pa.string()),
        "subject": pa.array([found.get("subject") for found in belongs], pa.string()),
        "index": pa.array([i for _, i in places], pa.int32()),
        "prompt": pa.array([groups[p].problem.prompt for p, _ in places], pa.string()),
        "completion": pa.array([c.text for c in completions], pa.string()),
        "answer": pa.array([scores.answers[p][i] for p, i in places], pa.string()),
        "ground_truth": pa.array([groups[p].problem.answer for p, _ in places], pa.string()),
        "correct": pa.array([bool(scores.correct[p, i]) for p, i in places], pa.bool_()),
        "reward": pa.array([value(scores.total, p, i) for p, i in places], pa.float64()),
        **{f"reward/{name}": pa.array([value(part, p, i) for p, i in places], pa.float64()) for name, part in scores.parts.items()},
        **{f"log/{name}": _column([rows[p][i] for p, i in places]) for name, rows in scores.logged.items()},
        "finish_reason": pa.array([c.finish_reason for c in completions], pa.string()),
        "length": pa.array([len(c.tokens) for c in completions], pa.int32()),
        "tokens": pa.array([list(c.tokens) for c in completions], pa.list_(pa.int32())),
        "sampling_logprobs": pa.array([list(c.sampling_logprobs) for c in completions], pa.list_(pa.float32())),
    }
    if advantages is not None:
        columns["advantages"] = pa.array([advantages[p][i] for p, i in places], pa.list_(pa.float32()))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".writing")
    pq.write_table(pa.table(columns), temporary, compression="zstd")
    os.replace(temporary, path)


def _column(values: list[Any]) -> Any:
    """Values of any one type as they are; of several types, as text."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except pa.ArrowException:
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def steps(folder: Path) -> list[int]:
    """The steps whose completions are in a folder, in order."""
    return sorted(int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.parquet"))


def read_columns(path: Path, names: Sequence[str], rows: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """As `read`, but only these columns (None where the file has no such) and, where given, only these rows."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    table = file.read(columns=[name for name in names if name in file.schema_arrow.names])
    found: list[dict[str, Any]] = (table if rows is None else table.take(list(rows))).to_pylist()
    return [{name: row.get(name) for name in names} for row in found]


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a step's file; RunError when it is missing."""
    import pyarrow.parquet as pq

    if not path.is_file():
        found = steps(path.parent)
        known = f"it has steps {found[0]} to {found[-1]}" if found else "it has none yet"
        raise RunError(f"{path}: no completions of that step; {known}.", fix="Choose one of those steps with --step.")
    return pq.read_table(path).to_pylist()
