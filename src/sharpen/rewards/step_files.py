"""Files in which people marked the steps of solutions: PRM800K, and those that mark the first mistake (BIG-Bench Mistake, MR-GSM8K)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sharpen.errors import RewardError
from sharpen.problems.files import read_rows
from sharpen.rewards.step_labels import AfterError, StepLabel, after_first_error, by_first_error

Neutral = Literal["right", "wrong", "none"]
QUESTION = ("question", "problem", "prompt")
GOLD = ("gold", "ground_truth", "ground_truth_answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A solution whose steps have been marked.

    Attributes:
        place: where it stands, `marks.jsonl:17`.
        id: its own, or the file's name and the row's number.
        question: the problem's text.
        gold: the ground truth; None where the file has none.
        texts: of its steps, at least one.
        labels: of its steps.
        correct: whether the answer is right, as the file says; None where it does not.
    """

    place: str
    id: str
    question: str
    gold: str | None
    texts: tuple[str, ...]
    labels: tuple[StepLabel, ...]
    correct: float | None

    @property
    def first_error(self) -> int | None:
        """The first step that is wrong, from 0."""
        return next((k for k, label in enumerate(self.labels) if label.value == 0.0), None)


def read_marks(path: Path, *, after_error: AfterError = "judge", neutral: Neutral = "right") -> list[Marked]:
    """The solutions of a file.

    A row has `question` or `problem`, `steps`, and where known `id`, `gold` (or `ground_truth`) and `answer_correct`. Its marks are in
    one of these forms:

    - `steps` of `{"text": ..., "rating": -1, 0 or 1}` (PRM800K's marks; a rating of null is no mark);
    - `steps` of texts, with `mistake_index` from 0, where -1 and null are none (BIG-Bench Mistake);
    - `steps` of texts, with `first_error_step` from 1, where null is none (MR-GSM8K).

    Args:
        path: a .jsonl file, or another that problems are read from.
        after_error: what steps after the first wrong one are: `judge`: as marked, which is no label where only the first is marked;
            `wrong`.
        neutral: what a rating of 0 is.

    Raises:
        ProblemError: no such file, or one that cannot be read.
        RewardError: a row that is none of this, with file and line.
    """
    return [_marked(place, f"{path.stem}/{number}", row, after_error, neutral) for number, (place, row) in enumerate(read_rows(path))]


def _marked(place: str, name: str, row: Mapping[str, Any], after_error: AfterError, neutral: Neutral) -> Marked:
    question = next((row[name] for name in QUESTION if name in row), None)
    if not isinstance(question, str) or not question.strip():
        raise RewardError(f"{place}: expected the problem's text as 'question' or 'problem', got {question!r:.60}.", fix="Mend the row.")
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps:
        raise RewardError(f"{place}: expected 'steps', a list of at least one, got {steps!r:.60}.", fix="Mend or remove the row.")
    rated = isinstance(steps[0], Mapping)
    texts = tuple(_text(place, k, step.get("text") if isinstance(step, Mapping) else step) for k, step in enumerate(steps))
    labels = (
        _rated(place, steps, after_error, neutral) if rated else by_first_error(len(steps), _mistake(place, row, len(steps)), after_error)
    )
    gold = next((row[name] for name in GOLD if row.get(name) is not None), None)
    correct = row.get("answer_correct")
    if correct is not None and not isinstance(correct, bool):
        raise RewardError(f"{place}: expected 'answer_correct' to be true or false, got {correct!r:.60}.", fix="Mend the row.")
    return Marked(
        place=place,
        id=str(row.get("id") or name),
        question=question.strip(),
        gold=None if gold is None else str(gold),
        texts=texts,
        labels=tuple(labels),
        correct=None if correct is None else float(correct),
    )


def _text(place: str, k: int, text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise RewardError(f"{place}: step {k} has no text, got {text!r:.60}.", fix="Give each step's text, or remove the step.")
    return text.strip()


def _rated(place: str, steps: Sequence[Any], after_error: AfterError, neutral: Neutral) -> list[StepLabel]:
    worth = {1: 1.0, -1: 0.0, 0: {"right": 1.0, "wrong": 0.0, "none": None}[neutral], None: None}
    values: list[float | None] = []
    for k, step in enumerate(steps):
        if not isinstance(step, Mapping) or "rating" not in step:
            raise RewardError(
                f"{place}: step {k} has no rating.", fix='Give each step as {"text": ..., "rating": -1, 0 or 1}; null is no mark.'
            )
        rating = step["rating"]
        if isinstance(rating, bool) or rating not in worth:
            raise RewardError(f"{place}: step {k} has rating {rating!r:.60}; expected -1, 0 or 1.", fix="Mend the row.")
        values.append(worth[rating])
    return [StepLabel(value) for value in after_first_error(values, after_error)]


def _mistake(place: str, row: Mapping[str, Any], count: int) -> int | None:
    """The first wrong step from 0; None where there is none."""
    name = next((name for name in ("mistake_index", "first_error_step") if name in row), None)
    if name is None:
        raise RewardError(
            f"{place}: steps without a mark: expected ratings of the steps, or 'mistake_index', or 'first_error_step'.",
            fix="Mark the steps, or label them by rule or by completion.",
        )
    first, value = int(name == "first_error_step"), row[name]
    if value is None or (value == -1 and not first):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not first <= value < count + first:
        raise RewardError(
            f"{place}: {name} is {value!r:.60}; expected {first} to {count + first - 1} for its {count} steps, or null for no mistake.",
            fix="Mend or remove the row.",
        )
    return value - first
