"""Equations between constants that do not hold."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from sharpen.grading import numeric
from sharpen.grading.expressions import read_expression

_DECIMAL = re.compile(r"[-+]?[\d,]*\.(\d+)")


def is_false(sides: Sequence[str]) -> bool:
    """Whether constants are said to be equal that are not, `6 = 5`; a decimal may be the other rounded to its digits, `2/3 = 0.67`."""
    constants = [(side, node) for side in sides if (node := read_expression(side)) is not None and not node.symbols()]
    try:
        values = [(side, numeric.value(node)) for side, node in constants if not node.holds("degree", "log")]
        return any(
            not numeric.close(one, other) and abs(one - other) > max(_rounding(first), _rounding(second))
            for (first, one), (second, other) in itertools.pairwise(values)
        )
    except (numeric.UndefinedError, numeric.TooLargeError):
        return False


def _rounding(side: str) -> float:
    """By how much a plain decimal may differ from what it is rounded from."""
    decimal = _DECIMAL.fullmatch(side)
    return 0.0 if decimal is None else 0.51 * 10.0 ** -min(len(decimal[1]), 300)
