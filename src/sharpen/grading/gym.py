"""Judging the answers to the problems of reasoning-gym by its own scorers."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import Any

from sharpen.errors import MissingPackageError
from sharpen.grading.extract import declared
from sharpen.grading.timing import TimeUpError, time_limit
from sharpen.grading.verdict import Verdict
from sharpen.records import Problem

TIME_LIMIT = 5.0


def grade_gym(problem: Problem, text: str) -> Verdict:
    """Judge what a completion declares, word for word, by the scorer of the problem's generator: a score of 1 is right.

    Args:
        problem: its `meta` has `generator` (the name), `parameters` (of the generator) and `entry` (the generated problem).
        text: the completion.

    Raises:
        MissingPackageError: when reasoning-gym is not installed.
    """
    meta = problem.meta
    if not {"generator", "entry"} <= meta.keys():
        return Verdict("unscorable", f"problem '{problem.id}' has no generator and entry in its meta", None)
    try:
        score_answer = _scorer(meta["generator"], json.dumps(meta.get("parameters", {}), sort_keys=True))
    except MissingPackageError:
        raise
    except Exception as error:
        return Verdict("unscorable", f"the scorer of '{meta['generator']}' cannot be built: {error}", None)
    answer = declared(text)
    if not answer:
        return Verdict("wrong", "no answer", None)
    try:
        with time_limit(TIME_LIMIT):
            score = float(score_answer(answer, meta["entry"]))
    except TimeUpError as late:
        return Verdict("wrong", f"the scorer of '{meta['generator']}' takes longer than {late.seconds:g} s", answer)
    except Exception as error:
        return Verdict("wrong", f"the scorer of '{meta['generator']}' fails on this answer: {type(error).__name__}: {error}"[:200], answer)
    return Verdict("right" if score >= 1.0 else "wrong", f"score {score:g}", answer)


def prepare() -> None:
    """Import what grading needs, where it is installed; that takes seconds."""
    with contextlib.suppress(ImportError):
        import reasoning_gym  # noqa: F401


@functools.lru_cache(maxsize=256)
def _scorer(generator: str, parameters: str) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise MissingPackageError(
            "reasoning-gym", needed_for="grading problems of reasoning-gym", install="pip install 'sharpen[reasoning-gym]'"
        ) from error
    return reasoning_gym.create_dataset(generator, size=1, seed=0, **json.loads(parameters)).score_answer
