"""What is checked about problems before anything is trained on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharpen.errors import ProblemError
from sharpen.grading import Verdict, state_gold
from sharpen.records import Problem

_SHOWN = 10


def check_golds(problems: Sequence[Problem], grader: Callable[[Problem, str], Verdict]) -> None:
    """Check that the ground truth of every problem is right by its own grader.

    Generated problems that have no single right answer are passed over.

    Args:
        problems: with their ground truths.
        grader: `sharpen.grading.grade`, or one like it.

    Raises:
        ProblemError: some are not; the first ten are listed, and the rest counted.
    """
    faults = []
    for problem in problems:
        if (stated := state_gold(problem)) is None:
            continue
        grade = grader(problem, stated)
        if grade.outcome != "right":
            faults.append(f"{problem.id}: answer {problem.answer!r}: {grade.outcome}: {grade.reason}")
    if faults:
        rest = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise ProblemError(
            f"{len(faults)} of {len(problems)} ground truths are not right by their own grader:\n  " + "\n  ".join(faults[:_SHOWN]) + rest,
            fix='Mend or remove them; where an answer stands within a solution, set answer_extraction; for letters, kind = "choice".',
        )
