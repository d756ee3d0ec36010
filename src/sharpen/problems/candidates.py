"""Six complete candidate answers to a question: the true solution and five with a mistake each, in seeded order.

Enough to learn from in seconds, and few enough to enumerate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sharpen import streams
from sharpen.problems.candidate_features import read
from sharpen.problems.corruptions import CORRUPTIONS
from sharpen.problems.worked import Worked, number, parse
from sharpen.records import Problem

CANDIDATES = 6
TRUE = "true solution"
TRIES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuestion:
    """A question with its candidate answers. Which one is right is for a reward to find out, by its final answer.

    Attributes:
        problem: the question, and the final answer that judges candidates.
        candidates: six worked solutions with six different final answers.
        origins: how each came to be, `true solution` or the mistake's name: for reports and tests, never for a policy.
    """

    problem: Problem
    candidates: tuple[str, ...]
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Questions with candidates.

    Attributes:
        questions: in the order of the problems.
        dropped: how many problems were left out, by reason.
    """

    questions: list[CandidateQuestion]
    dropped: dict[str, int]


def build(problems: Sequence[Problem], *, seed: int, limit: int | None = None) -> Built:
    """Candidates for each problem, those that take none left out and counted.

    Args:
        problems: with the worked solution as `meta["solution"]`.
        seed: of the mistakes and the order; a question's own depend on nothing but this, its id and its text.
        limit: stop at so many questions.
    """
    questions: list[CandidateQuestion] = []
    dropped: Counter[str] = Counter()
    for problem in problems:
        if limit is not None and len(questions) >= limit:
            break
        made = candidates(problem, seed=seed)
        if isinstance(made, str):
            dropped[made] += 1
        else:
            questions.append(made)
    return Built(questions=questions, dropped=dict(sorted(dropped.items())))


def candidates(problem: Problem, *, seed: int) -> CandidateQuestion | str:
    """The candidates of one problem, or why it takes none."""
    worked = parse(problem.meta["solution"])
    if worked is None:
        return "a solution that cannot be read"
    if not worked.steps:
        return "no equation"
    if number(worked.answer) != worked.steps[-1].value:
        return "an answer that is not the last result"
    rng = streams.generator(seed, "candidates", problem.id)
    known = sorted(read(problem.prompt).stated)
    made = {number(worked.answer): (TRUE, worked.text)}
    kinds = [*CORRUPTIONS, *rng.choice(list(CORRUPTIONS), TRIES).tolist()]  # one of each, then of any kind for those that cannot be
    for kind in kinds:
        if len(made) == CANDIDATES:
            break
        if wrong := _corrupted(kind, worked, known, set(made), rng):
            made[number(wrong.answer)] = (kind, wrong.text)
    if len(made) < CANDIDATES:
        return "too few different mistakes to make"
    listed = list(made.values())
    order = rng.permutation(CANDIDATES).tolist()
    return CandidateQuestion(
        problem=problem,
        candidates=tuple(listed[i][1] for i in order),
        origins=tuple(listed[i][0] for i in order),
    )


def _corrupted(kind: str, worked: Worked, known: list, taken: set, rng: np.random.Generator) -> Worked | None:
    """The solution with a mistake of this kind and a final answer not yet taken; None when a few tries give none."""
    for _ in range(8):
        wrong = CORRUPTIONS[kind](worked, known, rng)
        if wrong is not None and number(wrong.answer) not in taken:
            return wrong
    return None
