"""What is checked about problems before anything is trained on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharpen.errors import ProblemError
from sharpen.grading import Verdict, shared, state_gold
from sharpen.records import Problem

_SHOWN = 10


def check_golds(problems: Sequence[Problem], grader: Callable[[Problem, str], Verdict] | None = None) -> None:
    """Check that the ground truth of every problem is right by its own grader.

    Generated problems that have no single right answer are passed over.

    Args:
        problems: with their ground truths.
        grader: `sharpen.grading.grade`, or one like it; the shared pool of grading workers when None, which are then warm for the run.

    Raises:
        ProblemError: some are not; the first ten are listed, and the rest counted.
    """
    stated = [(problem, text) for problem in problems if (text := state_gold(problem)) is not None]
    verdicts = shared().grade_all(stated) if grader is None else [grader(problem, text) for problem, text in stated]
    faults = [
        f"{problem.id}: answer {problem.answer!r}: {verdict.outcome}: {verdict.reason}"
        for (problem, _), verdict in zip(stated, verdicts, strict=True)
        if verdict.outcome != "right"
    ]
    if faults:
        rest = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise ProblemError(
            f"{len(faults)} of {len(problems)} ground truths are not right by their own grader:\n  " + "\n  ".join(faults[:_SHOWN]) + rest,
            fix='Mend or remove them; where an answer stands within a solution, set answer_extraction; for letters, kind = "choice".',
        )
