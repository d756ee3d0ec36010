"""One entry to all graders, by the problem's kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sharpen.errors import nearest
from sharpen.grading.choice import grade_choice
from sharpen.grading.code import fenced, grade_code
from sharpen.grading.gym import grade_gym
from sharpen.grading.math import grade_math
from sharpen.grading.sandbox import SandboxKind
from sharpen.grading.verdict import Verdict
from sharpen.records import Problem

GRADERS: Mapping[str, Callable[[Problem, str], Verdict]] = {
    "math": lambda problem, text: grade_math(problem.answer, text),
    "choice": lambda problem, text: grade_choice(problem.answer, text),
    "code": grade_code,
    "reasoning_gym": grade_gym,
}
"""The graders by kind of problem."""


def grade(problem: Problem, text: str, *, sandbox: SandboxKind = "bubblewrap") -> Verdict:
    """Judge a completion of a problem by the grader of the problem's kind.

    Args:
        problem: what was asked, with its ground truth.
        text: the completion.
        sandbox: where the code of completions runs.

    Raises:
        SandboxError: a problem of kind `code`, and the sandbox is not installed or does not work.
    """
    if problem.kind == "code":
        return grade_code(problem, text, sandbox=sandbox)
    grader = GRADERS.get(problem.kind)
    if grader is None:
        known = ", ".join(GRADERS)
        return Verdict("unscorable", f"no grader for the kind '{problem.kind}'.{nearest(problem.kind, GRADERS)} Known: {known}", None)
    return grader(problem, text)


def state_gold(problem: Problem) -> str | None:
    """The shortest completion that gives the ground truth; None for a generated problem, or one of code, that has no single one."""
    if problem.kind == "code":
        solution = problem.meta.get("solution")
        return fenced(solution) if isinstance(solution, str) and solution.strip() else None
    if problem.kind != "reasoning_gym":
        return rf"\boxed{{{problem.answer}}}"
    return f"<answer>{problem.answer}</answer>" if problem.answer else None
