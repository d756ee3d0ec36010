"""Labelled completions in Parquet: one row a completion, with the columns of `Labelled`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from sharpen.errors import RewardError
from sharpen.rewards.labels import Labelled

COLUMNS = ("problem_id", "prompt_tokens", "completion_tokens", "label", "step_ends", "step_labels")


def write(path: Path, labelled: Sequence[Labelled]) -> None:
    """Write completions with their labels; a file cut short is never seen under this name. An unknown label is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "problem_id": pa.array([one.problem_id for one in labelled], pa.string()),
            "prompt_tokens": pa.array([list(one.prompt_tokens) for one in labelled], pa.list_(pa.int32())),
            "completion_tokens": pa.array([list(one.completion_tokens) for one in labelled], pa.list_(pa.int32())),
            "label": pa.array([None if math.isnan(one.label) else one.label for one in labelled], pa.float64()),
            "step_ends": pa.array([[end for end, _ in one.steps] for one in labelled], pa.list_(pa.int32())),
            "step_labels": pa.array([[label for _, label in one.steps] for one in labelled], pa.list_(pa.float64())),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".writing-{path.name}")
    pq.write_table(table, temporary, compression="zstd")
    os.replace(temporary, path)


def read(path: Path) -> list[Labelled]:
    """The completions of a file.

    Raises:
        RewardError: no such file, no Parquet, a column that is missing, or a row that makes no labelled completion, named by its number.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RewardError(f"labels {path}: cannot be read: {error}.", fix="Give a Parquet file of labelled completions.") from error
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise RewardError(
            f"labels {path}: there is no column {', '.join(missing)}; it has {', '.join(table.column_names)}.",
            fix=f"Its columns are {', '.join(COLUMNS)}.",
        )
    return [_labelled(path, number, row) for number, row in enumerate(table.select(list(COLUMNS)).to_pylist())]


def _labelled(path: Path, number: int, row: dict[str, object]) -> Labelled:
    ends, labels = _listed(row["step_ends"]), _listed(row["step_labels"])
    try:
        if len(ends) != len(labels):
            raise RewardError(f"{len(ends)} step_ends and {len(labels)} step_labels.", fix="Give one label for each step's end.")
        label = row["label"]
        return Labelled(
            problem_id=str(row["problem_id"] or ""),
            prompt_tokens=tuple(int(token) for token in _listed(row["prompt_tokens"])),
            completion_tokens=tuple(int(token) for token in _listed(row["completion_tokens"])),
            label=float(label) if isinstance(label, (int, float)) else math.nan,
            steps=tuple((int(end), value) for end, value in zip(ends, labels, strict=True) if not math.isnan(value)),
        )
    except RewardError as error:
        raise RewardError(f"labels {path}, row {number}: {error.what}", fix=error.fix) from error


def _listed(value: object) -> list[float]:
    """The numbers of a cell; null and NaN, which both mean unknown, as NaN."""
    return [math.nan if one is None else one for one in value] if isinstance(value, list) else []
