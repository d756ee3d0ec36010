r"""math-verify's LaTeX parser, made several times as fast with the same result.

ANTLR, the parser's library, predicts which rule of the grammar comes next. It can do so by the text alone (SLL) or by the text and the
rules that it is in (LL, its default), which costs most of the time of a parse. Predicting by the text alone keeps every rule that
predicting with more knowledge would, and both take the first of those that remain. So where SLL chooses another rule than LL, that rule
cannot match the text: the parse, which must reach the end of the text, ends in a syntax error. A parse by SLL without an error is therefore
LL's, and after an error LL is asked. Source: the ANTLR 4 documentation of `PredictionMode.SLL`; Parr, Harwell and Fisher, "Adaptive LL(*)
Parsing" (2014), §3.
"""

from __future__ import annotations

import functools
import re
from typing import Any

_INTEGER = re.compile(r"[0-9]{1,300}")
_DECIMAL = re.compile(r"[0-9]{1,300}\.[0-9]{1,300}")


@functools.cache
def hasten() -> None:
    """Import math-verify, and let its parser predict in two stages and read numbers without Python's compiler, in this process."""
    import math_verify  # noqa: F401  # all that grading needs, outside of any limit on time
    import sympy
    from antlr4.atn.PredictionMode import PredictionMode
    from latex2sympy2_extended import latex2sympy2

    class Latex2Sympy(latex2sympy2._Latex2Sympy):  # type: ignore[misc]
        prediction = PredictionMode.SLL

        def create_parser(self, latex_str: str) -> Any:
            parser = super().create_parser(latex_str)
            parser._interp.predictionMode = self.prediction
            return parser

        def parse(self, latex_str: str) -> Any:
            self.prediction = PredictionMode.SLL
            try:
                return super().parse(latex_str)
            except MemoryError:
                raise
            except Exception:  # a syntax error is a plain Exception there
                self.prediction = PredictionMode.LL
                return super().parse(latex_str)

        def parse_number(self, text: str) -> Any:
            """What `sympy.Number(text)` gives, which evaluates Python code for it."""
            plain = text.replace(",", "")
            if _INTEGER.fullmatch(plain):
                return sympy.Integer(int(plain))
            return sympy.Float(plain) if _DECIMAL.fullmatch(plain) else super().parse_number(text)

    latex2sympy2._Latex2Sympy = Latex2Sympy
