"""Grading a file of answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from sharpen.errors import ProblemError, RunError
from sharpen.folders import saving
from sharpen.grading.table import Columns, Grades, Item, grade_items, items, record
from sharpen.grading.verdict import Mode, Verdict
from sharpen.problems.checks import check_sandbox
from sharpen.problems.files import read_rows
from sharpen.tracking.observer import Observer, Silent


def grade_file(
    path: Path,
    *,
    kind: str | None = None,
    mode: str = "strict",
    gold: str | None = None,
    prediction: str | None = None,
    label: str | None = None,
    output: Path | None = None,
    observer: Observer | None = None,
) -> Grades:
    """Grade every row of a file; all rows are read, and so checked, before the first is graded.

    Args:
        path: a .jsonl, .json, .csv or .parquet file.
        kind: the grader of all rows; None: each row's column `kind`, or else `math`.
        mode: `strict` or `paper`.
        gold: the column of the ground truth; `gold` or `answer` when None.
        prediction: the column of the completion; `prediction` or `completion` when None. Null is a completion without an answer.
        label: the column of the verdict to compare with; `label`, where a row has it, when None.
        output: a file for the verdicts with their reasons, a JSON object a line.
        observer: who watches.

    Raises:
        ProblemError: no such file, a malformed row (with the file and line), or an unknown grader or mode.
        RunError: the output cannot be written, is no .jsonl file, or is the file that is graded.
        SandboxError: there are rows of code, and the sandbox is not installed or does not work.
    """
    observer = observer or Silent()
    columns = Columns(gold=gold, prediction=prediction, label=label, kind=kind, mode=cast(Mode, mode))
    if not path.is_file():
        raise ProblemError(f"{path}: no such file.", fix="Give a .jsonl, .json, .csv or .parquet file.")
    if output is not None and output.suffix != ".jsonl":
        raise RunError(f"--output {output}: expected a .jsonl file, for verdicts are JSON lines.", fix="Name it so.")
    if output is not None and output.exists() and output.samefile(path):
        raise RunError(f"--output {output}: it is the file that is graded, which would be lost.", fix="Name another file.")
    rows = list(items(read_rows(path), columns))
    if not rows:
        raise ProblemError(f"{path}: there are no rows in it.", fix="Give a file with a ground truth and a prediction a row.")
    check_sandbox([row.problem for row in rows], "bubblewrap", observer.notice)
    observer.phase("grading", len(rows), "rows")
    with _writer(output) as write:
        return grade_items(rows, write=write, on_progress=observer.advance)


@contextmanager
def _writer(path: Path | None) -> Iterator[Callable[[Item, Verdict], None] | None]:
    """Writes verdicts to a file that has its name when it is whole."""
    if path is None:
        yield None
        return
    temporary = path.with_name(path.name + ".writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Errors: a place that is the name of a file, which need not be in UTF-8, has escapes, which JSON has for this too.
        file: Any = temporary.open("w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"--output {path}: cannot be written: {error}.", fix="Name a file in a folder that can be written to.") from error

    def write(item: Item, verdict: Verdict) -> None:
        with told():
            file.write(json.dumps(record(item, verdict), ensure_ascii=False) + "\n")

    def told() -> AbstractContextManager[None]:
        kept = "The file that is graded, and an earlier file of verdicts, are as they were."
        fix = "Make room there, or name a file on another disk, and grade again."
        return saving("verdicts", path, kept=kept, fix=fix, partial=temporary)

    try:
        yield write
        with told():
            file.close()
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # closing writes what is left, which cannot be written either
            file.close()
        temporary.unlink(missing_ok=True)
