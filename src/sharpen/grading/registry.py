"""One entry to all graders, by the problem's kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sharpen.errors import nearest
from sharpen.grading.choice import grade_choice
from sharpen.grading.gym import grade_gym
from sharpen.grading.math import grade_math
from sharpen.grading.plain import grade_exact, grade_numeric, grade_regex
from sharpen.grading.verdict import Verdict
from sharpen.records import Problem

def _by_answer(grader: Callable[..., Verdict], **parameters: type | tuple[type, ...]) -> Callable[[Problem, str], Verdict]:
    """A grader of the problem's answer, with those of its parameters that the problem's meta gives."""

    def judge(problem: Problem, text: str) -> Verdict:
        given: dict[str, Any] = {name: problem.meta[name] for name in parameters if name in problem.meta}
        for name, value in given.items():
            if not isinstance(value, parameters[name]):
                return Verdict("unscorable", f"problem '{problem.id}': meta.{name} is {value!r}, of the wrong type", None)
        return grader(problem.answer, text, **given)

    return judge


GRADERS: Mapping[str, Callable[[Problem, str], Verdict]] = {
    "math": _by_answer(grade_math),
    "choice": _by_answer(grade_choice, choices=(list, tuple)),
    "exact": _by_answer(grade_exact, ignore_case=bool),
    "numeric": _by_answer(grade_numeric, absolute=(int, float), relative=(int, float)),
    "regex": _by_answer(grade_regex, ignore_case=bool, whole_text=bool),
    "reasoning_gym": grade_gym,
}
"""The graders by kind of problem."""


def grade(problem: Problem, text: str) -> Verdict:
    """Judge a completion of a problem by the grader of the problem's kind.

    Args:
        problem: what was asked, with its ground truth.
        text: the completion.
    """
    grader = GRADERS.get(problem.kind)
    if grader is None:
        known = ", ".join(GRADERS)
        return Verdict("unscorable", f"no grader for the kind '{problem.kind}'.{nearest(problem.kind, GRADERS)} Known: {known}", None)
    return grader(problem, text)


def state_gold(problem: Problem) -> str | None:
    """The shortest completion that gives the ground truth; None for one that has no single one: a pattern, or some generated problems."""
    if problem.kind == "regex":
        return None
    if problem.kind != "reasoning_gym":
        return rf"\boxed{{{problem.answer}}}"
    return f"<answer>{problem.answer}</answer>" if problem.answer else None
