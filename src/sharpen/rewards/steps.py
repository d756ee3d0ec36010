"""Rewards of steps: a completion is split (`sharpen.rewards.splitters`) and each step judged; the last one by the completion's own reward.

A step function is any callable `fn(steps: list[list[str]], **columns) -> list[list[float | None]]`, with one value a step and None for one
that it does not judge; the columns are those of reward functions (`sharpen.rewards.functions`).
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from sharpen.errors import RewardError
from sharpen.rewards.splitters import Step

_NUMBER = r"-?\d+(?:\.\d+)?"
_EQUATION = re.compile(rf"({_NUMBER}(?:\s*[-+*/×x]\s*{_NUMBER})+)\s*=\s*({_NUMBER})(?![\d.]*\s*[-+*/×])")
_TERM = re.compile(rf"\s*([-+*/×x])\s*({_NUMBER})")


def equations(steps: Sequence[Sequence[str]]) -> list[list[float | None]]:
    """1 for a step whose equations all hold, 0 for one with an equation that does not, None for one without any.

    An equation is `12 + 7 * 3 = 33`: numbers, the four operations with their usual precedence, and a number.
    """
    return [[_holds(text) for text in one] for one in steps]


def _holds(text: str) -> float | None:
    found = [_value(left) == Fraction(right) for left, right in _EQUATION.findall(text.replace(",", ""))]
    return float(all(found)) if found else None


def _value(expression: str) -> Fraction | None:
    """The value of `12 + 7 * 3`; None where it divides by zero."""
    first = re.match(rf"\s*({_NUMBER})", expression)
    assert first is not None
    terms = [Fraction(first[1])]
    for operation, number in _TERM.findall(expression[first.end() :]):
        value = Fraction(number)
        if operation in "*×x":
            terms[-1] *= value
        elif operation == "/":
            if value == 0:
                return None
            terms[-1] /= value
        else:
            terms.append(value if operation == "+" else -value)
    return sum(terms, Fraction(0))


BUILT_IN: Mapping[str, Callable[..., Any]] = {"equations": equations}


def step_columns(function: Callable[..., Any], columns: Mapping[str, list[Any]], places: Sequence[int]) -> dict[str, list[Any]]:
    """The columns that the function names, or all for `**columns`, of the completions at these places."""
    parameters = inspect.signature(function).parameters.values()
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    return {key: [column[place] for place in places] for key, column in columns.items() if every or key in names}


def judge(
    name: str, function: Callable[..., Any], steps: Sequence[Sequence[Step]], totals: Sequence[float], columns: Mapping[str, list[Any]]
) -> list[tuple[tuple[int, float], ...]]:
    """The (end, reward) pairs of each completion; the last step is worth the completion's reward, so that the answer counts.

    Args:
        name: the function's, for messages.
        function: a step function.
        steps: of each completion, at least one.
        totals: the completions' rewards, NaN where unscorable (no steps come back).
        columns: see the module.

    Raises:
        RewardError: the function does not return one number, or None, a step.
    """
    values = function([[step.text for step in one] for one in steps], **columns)
    shapes = [len(one) for one in steps]
    got = [len(one) for one in values] if isinstance(values, list) and all(isinstance(one, (list, tuple)) for one in values) else None
    if got != shapes:
        raise RewardError(
            f"Step function '{name}': expected {len(shapes)} lists with one value a step; got {type(values).__name__} {values!r:.80}.",
            fix="Return a list for each completion, with one number (or None) for each of its steps.",
        )
    out: list[tuple[tuple[int, float], ...]] = []
    for one, row, total in zip(steps, values, totals, strict=True):
        judged = [
            (step.end, float(value)) for step, value in zip(one[:-1], row, strict=False) if value is not None and math.isfinite(value)
        ]
        out.append((*judged, (one[-1].end, total)) if math.isfinite(total) else ())
    return out
