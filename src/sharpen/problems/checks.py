"""What is checked about problems before anything is trained on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharpen.errors import ProblemError
from sharpen.grading import SandboxKind, Verdict, shared, state_gold
from sharpen.grading.sandbox import working
from sharpen.records import Problem

_SHOWN = 10


def check_sandbox(problems: Sequence[Problem], sandbox: SandboxKind, notice: Callable[[str], None]) -> None:
    """Check that code can be run as the recipe says, where there are problems of code.

    Args:
        problems: all of a run.
        sandbox: where the code of completions runs.
        notice: told when it runs without a sandbox.

    Raises:
        SandboxError: it cannot; the message says what to install.
    """
    if not any(problem.kind == "code" for problem in problems):
        return
    if sandbox == "none":
        notice(
            'sandbox = "none": the code of completions runs on this machine as you, with limits on time and memory, and no '
            "other protection: it can read and delete your files and use the network"
        )
    working(sandbox)


def check_golds(
    problems: Sequence[Problem], grader: Callable[[Problem, str], Verdict] | None = None, *, sandbox: SandboxKind = "bubblewrap"
) -> None:
    """Check that the ground truth of every problem is right by its own grader.

    Generated problems that have no single right answer are passed over, and so are problems of code without a `solution`.

    Args:
        problems: with their ground truths.
        grader: `sharpen.grading.grade`, or one like it; the shared pool of grading workers when None, which are then warm for the run.
        sandbox: where the pool runs the code of problems.

    Raises:
        ProblemError: some are not; the first ten are listed, and the rest counted.
    """
    stated = [(problem, text) for problem in problems if (text := state_gold(problem)) is not None]
    verdicts = shared().grade_all(stated, sandbox=sandbox) if grader is None else [grader(problem, text) for problem, text in stated]
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
