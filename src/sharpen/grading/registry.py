"""One entry to all graders, by the problem's kind."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from sharpen.errors import nearest
from sharpen.grading import gym, library, votes
from sharpen.grading.choice import grade_choice
from sharpen.grading.code import fenced, grade_code
from sharpen.grading.finished import own_words, repeats_formula
from sharpen.grading.math import grade_math
from sharpen.grading.parameters import KEY, parameter_fault
from sharpen.grading.plain import grade_exact, grade_numeric, grade_regex
from sharpen.grading.sandbox import SandboxKind
from sharpen.grading.timing import NotQuickError, quick_only
from sharpen.grading.verdict import Verdict
from sharpen.records import Problem


def _by_answer(grader: Callable[..., Verdict]) -> Callable[[Problem, str], Verdict]:
    """A grader of the problem's answer, with the parameters that the problem gives."""

    def judge(problem: Problem, text: str) -> Verdict:
        given = problem.meta.get(KEY, {})
        if (fault := parameter_fault(problem.kind, given)) is not None:
            return Verdict("unscorable", f"problem '{problem.id}': meta.{KEY}: {fault}", None)
        return grader(problem.answer, text, **given)

    return judge


_by_value = _by_answer(grade_math)


def _math(problem: Problem, text: str) -> Verdict:
    """Mathematics, where the question again is no answer."""
    verdict = _by_value(problem, own_words(problem.prompt, text))
    if verdict.outcome == "right" and repeats_formula(problem.prompt, verdict.extracted or "", problem.answer):
        return replace(verdict, outcome="wrong", reason="a formula of the question, word for word")
    return verdict


GRADERS: Mapping[str, Callable[[Problem, str], Verdict]] = {
    "math": _math,
    "choice": _by_answer(grade_choice),
    "exact": _by_answer(grade_exact),
    "numeric": _by_answer(grade_numeric),
    "regex": _by_answer(grade_regex),
    "code": grade_code,
    "reasoning_gym": gym.grade_gym,
}
"""The graders by kind of problem."""

LONGEST_QUICK = 200_000
"""Characters. A longer text is left to a worker, which can be ended."""

_QUICK = frozenset({"math", "choice", "exact", "numeric", "regex"})
"""Kinds whose graders do all slow work under a time limit, and so can be asked for quick work only."""


def grade(problem: Problem, text: str, *, sandbox: SandboxKind = "bubblewrap") -> Verdict:
    """Judge a completion of a problem by the grader of the problem's kind.

    In this process and without a limit on memory; `GradingPool` judges in workers, with limits.

    Args:
        problem: what was asked, with its ground truth.
        text: the completion.
        sandbox: where the code of completions runs.

    Raises:
        SandboxError: a problem of kind `code`, and the sandbox is not installed or does not work.
    """
    start = time.perf_counter()
    grader = votes.judge if problem.kind == votes.KIND else GRADERS.get(problem.kind)
    if problem.kind == "code":
        grader = functools.partial(grade_code, sandbox=sandbox)
    if grader is None:
        known = ", ".join(GRADERS)
        return Verdict("unscorable", f"no grader for the kind '{problem.kind}'.{nearest(problem.kind, GRADERS)} Known: {known}", None)
    verdict = grader(problem, text)
    return replace(verdict, seconds=time.perf_counter() - start)


def quick(problem: Problem, text: str) -> Verdict | None:
    """The verdict of `grade` where it takes well under a millisecond a thousand characters; None where it may take longer.

    Plain numbers, letters and words are judged quickly; formulas, and texts of more than `LONGEST_QUICK` characters, are not.
    """
    if len(text) > LONGEST_QUICK or (problem.kind in GRADERS and problem.kind not in _QUICK):
        return None
    try:
        with quick_only():
            return grade(problem, text)
    except (NotQuickError, Exception):  # a worker, with its limits, says what is at fault
        return None


def prepare(kind: str) -> None:
    """Import what grading this kind of problem needs, so that the first verdict takes no longer than the others."""
    if kind == "math":
        grade_math(r"\frac{x}{2}", r"\boxed{\frac{x}{3}}")
        library.prepare()
    elif kind == "reasoning_gym":
        gym.prepare()


def state_gold(problem: Problem) -> str | None:
    """The shortest completion that gives the ground truth; None where there is no single one: a pattern, generated, code."""
    if problem.kind == "regex":
        return None
    if problem.kind == "code":
        solution = problem.meta.get("solution")
        return fenced(solution) if isinstance(solution, str) and solution.strip() else None
    if problem.kind != "reasoning_gym":
        return rf"\boxed{{{problem.answer}}}"
    return f"<answer>{problem.answer}</answer>" if problem.answer else None
