"""The hastened LaTeX parser gives what math-verify's own gives: the same tree, and the same value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sympy

from sharpen.grading.latex import hasten

FORMULAS = [
    r"\frac{\pi}{2}",
    r"\frac12",
    r"x^2 + 1001x + 5003",
    r"(x - 3)(x + 5) = 0",
    r"\left( 3, \frac{\pi}{2} \right)",
    r"(1, 2]\cup[3, \infty)",
    r"[1001, \infty)",
    r"\{1, \sqrt{2}\}",
    r"1 \le x < 2",
    r"-34x-45y+20z-100=0",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
    r"\sum_{k=1}^{n} \frac{1}{k^2}",
    r"\int_0^1 x^2 \, dx",
    r"\sin^2 x + \cos 2x",
    r"f(x) + g(x)",
    r"|x - 2| + \lfloor 2.5 \rfloor",
    r"\binom{5}{2}",
    r"2\frac{1}{2}",
    r"7,425,000",
    r"0.75, 3",
    r"28\%",
    r"3 + 4i",
    r"\log_2 8",
    r"x \in (0, 1)",
    r"abc",
    r"1 +",
    r"\frac{1}{",
    r")(",
    "",
]


def stages() -> tuple[Any, Any, Any]:
    """The hastened parser, math-verify's own that it is made of, and the kinds of prediction."""
    hasten()
    from antlr4.atn.PredictionMode import PredictionMode
    from latex2sympy2_extended import latex2sympy2

    quick = latex2sympy2._Latex2Sympy
    return quick, quick.__mro__[1], PredictionMode


def tree(text: str, mode: Any) -> str | None:
    """The parse tree with this kind of prediction; None where there is a syntax error."""
    _, slow, _ = stages()
    parser = slow().create_parser(text)
    parser._interp.predictionMode = mode
    try:
        found: str = parser.math().toStringTree(recog=parser)
    except Exception:
        return None
    return found


def value(converter: Any, text: str) -> str:
    try:
        return str(sympy.srepr(converter(is_real=True).parse(text)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def judged(texts: list[str]) -> int:
    """Compare both parsers on each text; how many of the quick one's first stages found the tree."""
    quick, slow, modes = stages()
    found = 0
    for text in texts:
        first, full = tree(text, modes.SLL), tree(text, modes.LL)
        assert first is None or first == full, text
        assert value(quick, text) == value(slow, text), text
        found += first is not None
    return found


def test_both_stages_give_the_tree_of_full_prediction() -> None:
    assert judged(FORMULAS) >= 18


def test_the_ground_truths_of_math500(data_dir: Path) -> None:
    from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex

    rows = [json.loads(line) for line in (data_dir / "math500.jsonl").read_text(encoding="utf-8").splitlines()]
    assert judged([normalize_latex(row["answer"], NormalizationConfig()) for row in rows]) > 400


@pytest.mark.parametrize(
    "text", ["0", "7", "007", "1,001", "9" * 300, "0.5", "00.5", "1.50", "3.141592653589793238462643", "0.1[6]", "nan"]
)
def test_numbers_are_what_sympy_reads(text: str) -> None:
    quick, slow, _ = stages()
    ours, theirs = quick().parse_number(text), slow().parse_number(text)
    assert (sympy.srepr(ours), type(ours)) == (sympy.srepr(theirs), type(theirs))
