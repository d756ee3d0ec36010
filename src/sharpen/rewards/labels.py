"""What a reward model learns from: a completion's tokens, with a label of the whole and labels of its steps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpen.errors import RewardError

ABOUT = b"sharpen"  # the key of a file's metadata that holds how its labels were made


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One completion with labels.

    Attributes:
        problem_id: the problem's.
        prompt_tokens: the token ids that the completion continues, template included.
        completion_tokens: the completion's token ids, the stop token included when there is one; at least one.
        label: of the whole: 1.0 right, 0.0 wrong, a share between them when soft, NaN when unknown.
        steps: of each labelled step, the place of its last token in `completion_tokens` and its label in [0, 1]: `((3, 1.0), (9, 0.0))`
            for a completion of ten tokens in two steps. Places rise; a step without a label is not there.

    Raises:
        RewardError: a field that is none of this; the message names the problem.
    """

    problem_id: str
    prompt_tokens: tuple[int, ...]
    completion_tokens: tuple[int, ...]
    label: float
    steps: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        where = f"Labels of a completion of problem '{self.problem_id}'"
        if not self.problem_id:
            raise RewardError("Labels of a completion: its problem has no id.", fix="Give each problem an id.")
        if not self.completion_tokens:
            raise RewardError(f"{where}: the completion has no token.", fix="Leave empty completions out.")
        for name, tokens in (("prompt", self.prompt_tokens), ("completion", self.completion_tokens)):
            if (bad := next((token for token in tokens if token < 0), None)) is not None:
                raise RewardError(f"{where}: the {name} has token id {bad}; expected ids of at least 0.", fix="Give token ids.")
        if not (math.isnan(self.label) or 0.0 <= self.label <= 1.0):
            raise RewardError(f"{where}: expected a label from 0 to 1, or NaN for unknown; got {self.label!r}.", fix="Mend the label.")
        before, last = -1, len(self.completion_tokens) - 1
        for end, label in self.steps:
            if not before < end <= last:
                raise RewardError(
                    f"{where}: a step ends at token {end}; expected places that rise, from {before + 1} to {last}.",
                    fix="Give each step once, by the place of its last token in the completion.",
                )
            if not 0.0 <= label <= 1.0:  # NaN fails it too
                raise RewardError(
                    f"{where}: the step that ends at token {end} has label {label!r}; expected one from 0 to 1.",
                    fix="Leave steps without a label out.",
                )
            before = end


def write(
    path: Path, rows: Sequence[Labelled], *, about: Mapping[str, Any] | None = None, beside: Mapping[str, Sequence[Any]] | None = None
) -> None:
    """Write labels as Parquet, a row a completion; a file cut short is never seen under this name.

    Columns: problem_id, prompt_tokens, completion_tokens, label (null where unknown), label_ends and label_values (one entry a
    labelled step).

    Args:
        path: of the file.
        rows: the labels.
        about: how they were made, plain values; kept in the file's metadata.
        beside: more columns, one value a row each.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids, numbers = pa.list_(pa.int32()), pa.list_(pa.float64())
    columns: dict[str, Any] = {
        "problem_id": pa.array([row.problem_id for row in rows], pa.string()),
        "prompt_tokens": pa.array([row.prompt_tokens for row in rows], ids),
        "completion_tokens": pa.array([row.completion_tokens for row in rows], ids),
        "label": pa.array([None if math.isnan(row.label) else row.label for row in rows], pa.float64()),
        "label_ends": pa.array([[end for end, _ in row.steps] for row in rows], ids),
        "label_values": pa.array([[value for _, value in row.steps] for row in rows], numbers),
        **{name: pa.array(list(values)) if not hasattr(values, "type") else values for name, values in (beside or {}).items()},
    }
    table = pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(about or {}, sort_keys=True).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".writing")
    pq.write_table(table, temporary, compression="zstd")
    os.replace(temporary, path)


def read(path: Path) -> list[Labelled]:
    """The labels of a file that `write` wrote.

    Raises:
        RewardError: no such file, one that cannot be read, or a row that cannot be.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fix = "Give a file that `sharpen label-steps` wrote."
    if not path.is_file():
        raise RewardError(f"{path}: no such file of labels.", fix=fix)
    try:
        rows = pq.read_table(path, columns=list(COLUMNS)).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise RewardError(f"{path}: not a readable file of labels: {error}.", fix=fix) from error
    return [_row(f"{path}, row {number}", row) for number, row in enumerate(rows)]


COLUMNS = ("problem_id", "prompt_tokens", "completion_tokens", "label", "label_ends", "label_values")


def _row(place: str, row: Mapping[str, Any]) -> Labelled:
    if any(row.get(name) is None for name in COLUMNS if name != "label") or len(row["label_ends"]) != len(row["label_values"]):
        raise RewardError(f"{place}: expected {', '.join(COLUMNS)}, got {row!r:.120}.", fix="Mend or remove the row.")
    try:
        return Labelled(
            problem_id=row["problem_id"],
            prompt_tokens=tuple(row["prompt_tokens"]),
            completion_tokens=tuple(row["completion_tokens"]),
            label=math.nan if row["label"] is None else row["label"],
            steps=tuple(zip(row["label_ends"], row["label_values"], strict=True)),
        )
    except RewardError as error:
        raise RewardError(f"{place}: {error.what}", fix=error.fix) from error


def about(path: Path) -> dict[str, Any]:
    """How the labels of a file were made; empty where it does not say."""
    import pyarrow.parquet as pq

    found: dict[str, Any] = json.loads((pq.read_schema(path).metadata or {}).get(ABOUT, b"{}"))
    return found
