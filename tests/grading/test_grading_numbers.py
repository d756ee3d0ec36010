from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpen.grading.numbers import exact

NUMBERS = [
    ("72", Fraction(72)),
    ("-3", Fraction(-3)),
    ("+5", Fraction(5)),
    ("7,425,000", Fraction(7_425_000)),
    ("7{,}425{,}000", Fraction(7_425_000)),
    (r"11,\! 111,\! 100", Fraction(11_111_100)),
    ("0.5", Fraction(1, 2)),
    (".5", Fraction(1, 2)),
    ("12.", Fraction(12)),
    ("1,234.50", Fraction(2469, 2)),
    ("3/4", Fraction(3, 4)),
    ("-3 / 4", Fraction(-3, 4)),
    (r"\frac{9}{7}", Fraction(9, 7)),
    (r"\dfrac{9}{7}", Fraction(9, 7)),
    (r"\frac97", Fraction(9, 7)),
    (r"\frac1{2}", Fraction(1, 2)),
    (r"\frac{1}2", Fraction(1, 2)),
    (r"-\frac{1}{2}", Fraction(-1, 2)),
    (r"\frac{-1}{2}", Fraction(-1, 2)),
    (r"1\frac{3}{4}", Fraction(7, 4)),
    (r"-1\frac34", Fraction(-7, 4)),
    ("1 3/4", Fraction(7, 4)),
    (r"1.2 \times 10^5", Fraction(120_000)),
    (r"-3 \cdot 10^{-2}", Fraction(-3, 100)),
    ("2 × 10^{3}", Fraction(2000)),
    (r"28\%", Fraction(7, 25)),
    ("28%", Fraction(7, 25)),
    ("28 %", Fraction(7, 25)),
    ("28 percent", Fraction(7, 25)),
    (r"28 \text{ percent}", Fraction(7, 25)),
    ("28 pct", Fraction(7, 25)),
    ("2.8％", Fraction(28, 1000)),
    ("５", Fraction(5)),
    ("−5", Fraction(-5)),
    ("$18", Fraction(18)),
    (r"\$32,\!348", Fraction(32348)),
    ("18 dollars", Fraction(18)),
    ("60 miles per hour", Fraction(60)),
    (r"10\text{ inches}", Fraction(10)),
    (r"5.4 \text{ cents}", Fraction(27, 5)),
    (r"25\text{ cm}^2", Fraction(25)),
    (r"90^\circ", Fraction(90)),
    ("120°", Fraction(120)),
    ("5 million", Fraction(5_000_000)),
    (r"2.5\text{ million dollars}", Fraction(2_500_000)),
    ("3 dozen", Fraction(36)),
]

NOT_NUMBERS = [
    *("", " ", "x", "x=5", "1/0", r"\frac{1}{0}", r"\sqrt{2}", "5x", "5 pi", r"2\mathrm{e}", "5!", "2^3", "five", "3 squared"),
    *("3 or 5", "3 and", "1, 2", "1,2345", "12,34", "1 2", "(1,2)", "1.2.3", "--5", "9" * 5000),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_a_plain_number_is_read_exactly(text: str, value: Fraction) -> None:
    assert exact(text) == value


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_what_is_not_one_plain_number_is_not_read(text: str) -> None:
    assert exact(text) is None


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_every_way_to_write_a_fraction_gives_the_same_number(top: int, bottom: int) -> None:
    value = Fraction(top, bottom)
    sign, size = ("-" if top < 0 else ""), abs(top)
    assert exact(f"{top}/{bottom}") == value
    assert exact(rf"\frac{{{top}}}{{{bottom}}}") == value
    assert exact(rf"{sign}\tfrac{{{size}}}{{{bottom}}}") == value
    assert exact(f"{top:,}") == exact(f"{top}.00") == exact(f"${sign}{size}$") == top
    assert exact(rf"{top}\%") == Fraction(top, 100)
