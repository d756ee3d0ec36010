"""Calculations in prose."""

from __future__ import annotations

import json

import pytest

from sharpen.rewards.calculations import calculations


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 * 8 = 56", 1.0),
        ("7*8=54", 0.0),
        ("A = (-9 - 5 - 0) = (-9 - 5) = -14.", 1.0),
        (
            "Let's calculate B = ((-6 + 5 - -9 * -8) + (2 - 0 - 5 + 0)) = ((-6 + 5 - 72) + (2 - 5)) = (-67) + (-3) = -70.",
            0.0,
        ),  # -73, not -67
        ("C = ((3 * 4 * 5) * (7 - -7 * 4)) = ((3 * 4 * 5) * (7 - 28))", 0.0),
        ("the final equation is A - B = -14 - 2 = -16. So the answer is -16", 1.0),
        ("A - B = 5 - 3 and 2A - 3 = 5 and f(3 + 4) = 9", None),
        ("75 / 55 = <<75/55=1.4>>1.4 hours", 1.0),
        ("<<75/55=1.5>>", 0.0),
        ("2/3 = 0.67, 2/3 = 0.66", 0.0),
        ("(140/150) * 100 = 93.33%", 1.0),
        ("60% * $60 = $36", 1.0),
        ("$105 / $.25 = 420.", 1.0),
        ("20 x 12 = 240 square feet", 1.0),
        ("1,000 + 1 = 1,001", 1.0),
        ("40 ÷ 8 × 3 = 15 (since 40 is 5 eights)", 1.0),
        ("Add them. 3 + 4 = 7", 1.0),
        ("1. 3 + 4 = 7", 1.0),
        ("12 + 7 = 19.", 1.0),
        ("3 + 4 = 7x", None),
        ("2 + 3 = 1 + 4", 1.0),
        ("x = 5", None),
        ("Step 2 = 3", None),
        ("3 <= 2 + 2 and 3 + 3 >= 5", None),
        ("1 / 0 = 0", 0.0),
        ("9**9**9**9 = 5", None),
        ("5 = 5", None),
        ("(" * 150 + "1 + 1 = 3", None),
        ("", None),
    ],
)
def test_calculations(text: str, value: float | None) -> None:
    assert calculations([[text]]) == [[value]]


def test_the_solutions_of_gsm8k_hold(data_dir) -> None:
    rows = [json.loads(line)["answer"] for line in (data_dir / "gsm8k" / "test.jsonl").read_text().splitlines()[:400]]
    found = [value for row in calculations([text.splitlines() for text in rows]) for value in row if value is not None]
    assert len(found) > 1000
    assert sum(found) / len(found) > 0.985
