"""Grading rows of ground truths and predictions, and comparing the verdicts with labels."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sharpen.errors import ProblemError, nearest
from sharpen.grading.parameters import KEY
from sharpen.grading.pool import shared
from sharpen.grading.registry import GRADERS
from sharpen.grading.verdict import Mode, Verdict
from sharpen.records import Problem

GOLDS = ("gold", "answer")
PREDICTIONS = ("prediction", "completion")
LABEL = "label"
_AT_ONCE = 256  # rows that the pool is given together
_LABELS = {"right": "right", "true": "right", "1": "right", "wrong": "wrong", "false": "wrong", "0": "wrong"}


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column is what, and how rows are graded; None where the column is looked for by its usual names.

    Attributes:
        gold: the ground truth.
        prediction: the completion.
        label: what the verdict is compared with.
        kind: the grader of all rows; None: the column `kind` where a row has it, else `math`.
        mode: what counts as equal in mathematics.
    """

    gold: str | None = None
    prediction: str | None = None
    label: str | None = None
    kind: str | None = None
    mode: Mode = "strict"

    def __post_init__(self) -> None:
        """Refuse a grader or mode that there is not."""
        if self.kind is not None and self.kind not in GRADERS:
            raise ProblemError(
                f"--kind {self.kind}: there is no such grader.{nearest(self.kind, GRADERS)}", fix=f"Give {', '.join(GRADERS)}."
            )
        if self.mode not in ("strict", "paper"):
            raise ProblemError(f"--mode {self.mode}: there is no such mode.", fix="Give strict or paper.")
        if self.mode == "paper" and self.kind not in (None, "math"):
            raise ProblemError(f"--mode paper: only mathematics has it, and --kind is {self.kind}.", fix="Leave --mode out.")


@dataclass(frozen=True, kw_only=True)
class Item:
    """A row to grade.

    Attributes:
        place: where it stands, such as `answers.jsonl:17`.
        problem: with the ground truth and the grader's kind.
        text: the completion.
        label: `right` or `wrong` where the row says so.
    """

    place: str
    problem: Problem
    text: str
    label: str | None


@dataclass(kw_only=True)
class Grades:
    """How the rows of a file were graded.

    Attributes:
        verdicts: how many of each outcome.
        confusion: how many of each (label, outcome), of the rows with a label.
        differing: the places of the first rows whose verdict is not their label, with ground truth, text and reason.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    differing: list[tuple[Item, Verdict]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Rows."""
        return self.verdicts.total()

    @property
    def agreement(self) -> float | None:
        """The share of rows with a label whose verdict is that label; None without labels."""
        labelled = self.confusion.total()
        return sum(n for (label, outcome), n in self.confusion.items() if label == outcome) / labelled if labelled else None


def items(rows: Iterable[tuple[str, Mapping[str, Any]]], columns: Columns) -> Iterator[Item]:
    """The rows to grade.

    Args:
        rows: where each stands, and its fields.
        columns: which is what.

    Raises:
        ProblemError: a row without a ground truth or prediction, or with a label that is none; it names the place.
    """
    for place, row in rows:
        gold = _text(place, row, _column(place, row, columns.gold, GOLDS, "--gold"))
        name = _column(place, row, columns.prediction, PREDICTIONS, "--prediction")
        text = "" if row[name] is None else _text(place, row, name)
        kind = columns.kind or row.get("kind") or "math"
        if kind not in GRADERS:
            raise ProblemError(
                f"{place}: kind '{kind}': there is no such grader.{nearest(str(kind), GRADERS)}", fix=f"Give {', '.join(GRADERS)}."
            )
        if columns.label is not None:
            _column(place, row, columns.label, (), "--label")
        label = _label(place, row.get(columns.label or LABEL), columns.label or LABEL)
        parameters = {} if row.get(KEY) is None else row[KEY]  # what will not do is told by the grader
        if kind == "math" and isinstance(parameters, Mapping):
            parameters = {"mode": columns.mode, **parameters}
        meta = {**row, KEY: parameters}
        yield Item(place=place, problem=Problem(id=place, prompt="", answer=gold, kind=kind, meta=meta), text=text, label=label)


def grade_items(
    rows: Iterable[Item],
    *,
    write: Callable[[Item, Verdict], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
    shown: int = 10,
) -> Grades:
    """Grade rows.

    Args:
        rows: in order.
        write: called with each row and its verdict.
        on_progress: called with the number of rows that have just been graded.
        shown: keep so many rows whose verdict is not their label.
    """
    found = Grades()
    rows = iter(rows)
    while part := list(itertools.islice(rows, _AT_ONCE)):
        for item, verdict in zip(part, shared().grade_all([(item.problem, item.text) for item in part]), strict=True):
            found.verdicts[verdict.outcome] += 1
            if item.label is not None:
                found.confusion[item.label, verdict.outcome] += 1
                if item.label != verdict.outcome and len(found.differing) < shown:
                    found.differing.append((item, verdict))
            if write is not None:
                write(item, verdict)
        if on_progress is not None:
            on_progress(len(part))
    return found


def record(item: Item, verdict: Verdict) -> dict[str, Any]:
    """A row and its verdict as a JSON object."""
    return {
        "row": item.place,
        "kind": item.problem.kind,
        "gold": item.problem.answer,
        "prediction": item.text,
        **({} if item.label is None else {"label": item.label}),
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "extracted": verdict.extracted,
    }


def _column(place: str, row: Mapping[str, Any], given: str | None, usual: tuple[str, ...], option: str) -> str:
    names = usual if given is None else (given,)
    for name in names:
        if name in row:
            return name
    wanted = " or ".join(f"'{name}'" for name in names)
    raise ProblemError(
        f"{place}: there is no column {wanted}; the row has {', '.join(map(repr, row)) or 'none'}.{nearest(names[0], row)}",
        fix=f"Name the column with {option}.",
    )


def _text(place: str, row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return repr(value)
    if not isinstance(value, str):
        what = "missing" if value is None else f"{str(value)[:60]} ({type(value).__name__})"
        raise ProblemError(f"{place}: column '{name}' is {what}, expected text or a number.", fix="Mend or remove the row.")
    return value


def _label(place: str, value: Any, name: str) -> str | None:
    if value is None or value == "":
        return None
    known = _LABELS.get(str(value).strip().lower())
    if known is None:
        raise ProblemError(f"{place}: column '{name}' is {value!r:.60}, expected {', '.join(_LABELS)}.", fix="Mend the row.")
    return known
