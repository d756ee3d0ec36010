r"""One spelling for what mathematics writes in many: full-width and typographic characters, sizes, spacing, colours, synonyms.

Every substitution here changes only how an answer looks, never what it says.
"""

from __future__ import annotations

import functools
import re

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x2212: "-"}

_CHARACTERS = str.maketrans(
    {
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "⩽": r"\le ",
        "≥": r"\ge ",
        "⩾": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "≡": r"\equiv ",
        "×": r"\times ",
        "÷": r"\div ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "∙": r"\cdot ",
        "±": r"\pm ",
        "∓": r"\mp ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "ℝ": r"\mathbb{R}",
        "°": r"^{\circ}",
        "…": r"\ldots ",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "∠": r"\angle ",
        "–": "-",
        "¼": r"\frac{1}{4}",
        "½": r"\frac{1}{2}",
        "¾": r"\frac{3}{4}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        "⅛": r"\frac{1}{8}",
        "α": r"\alpha ",
        "β": r"\beta ",
        "γ": r"\gamma ",
        "θ": r"\theta ",
        "λ": r"\lambda ",
        "μ": r"\mu ",
        "φ": r"\phi ",
        "ω": r"\omega ",
        "⁰": "^{0}",
        "¹": "^{1}",
        "²": "^{2}",
        "³": "^{3}",
        "⁴": "^{4}",
        "⁵": "^{5}",
        "⁶": "^{6}",
        "⁷": "^{7}",
        "⁸": "^{8}",
        "⁹": "^{9}",
        "\u00a0": " ",
        "\n": " ",
        "\t": " ",
        "~": " ",
    }
)
_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z])")
_SYNONYMS = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("leq", "leqslant"), r"\le"),
    **dict.fromkeys(("geq", "geqslant"), r"\ge"),
    **dict.fromkeys(("neq",), r"\ne"),
    **dict.fromkeys(("lt",), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("varnothing",), r"\emptyset"),
    **dict.fromkeys(("dots", "cdots", "dotsc", "dotsb"), r"\ldots"),
    **dict.fromkeys(("lbrace",), r"\{"),
    **dict.fromkeys(("rbrace",), r"\}"),
    **dict.fromkeys(("lvert", "rvert", "vert", "mid"), "|"),
    **dict.fromkeys(("mathrm", "textrm", "textbf", "textit", "textnormal", "mbox", "textsf", "texttt"), r"\text"),
    **dict.fromkeys(("backslash",), r"\setminus"),
    **dict.fromkeys(("to", "rightarrow"), r"\to"),
    **dict.fromkeys(("arcsec",), r"\arcsec"),
    **dict.fromkeys(("lparen",), "("),
    **dict.fromkeys(("rparen",), ")"),
    **dict.fromkeys(("colon",), ":"),
    **dict.fromkeys(("ast", "bullet"), "*"),
    **dict.fromkeys(("varphi",), r"\phi"),
    **dict.fromkeys(("textstyle", "displaystyle", "scriptstyle", "limits", "left", "right", "boldsymbol", "bm", "mathit", "mathsf"), ""),
    **dict.fromkeys(("big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "rm", "bf", "it", "mathstrut"), ""),
    **dict.fromkeys(("quad", "qquad", "thinspace", "hspace", "space"), " "),
}
# Longest first: a command ends where its letters end.
_COMMAND = re.compile(r"\\([A-Za-z]+)(?![A-Za-z])")
_BRACES_ABOVE = re.compile(r"\\operatorname\*?\s*\{\s*([A-Za-z]+)\s*\}")
_COLOUR = re.compile(r"\\(?:text)?color\s*\{[^{}]*\}")
_SPACES = re.compile(r"(?<!\\)\\[!,;: ]")
_CONSTANT = re.compile(r"\\(?:text|mathbf)\s*\{\s*([eidC\d.,]+)\s*\}")
_OVER = re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}")
_DOLLAR = re.compile(r"\\\$|^(?=[^$]*\$[^$]*$)([-+]?\s*)\$(?=\s*-?[\d.])")
DOLLAR = "＄"
"""A dollar that is money, where other dollar signs are delimiters."""
_SIGNS = (
    (r"\text{infinity}", r"\infty "),
    ("<=", r"\le "),
    (">=", r"\ge "),
    ("!=", r"\ne "),
    ("$", ""),
    ("\\(", ""),
    ("\\)", ""),
    ("\\[", ""),
    ("\\]", ""),
)


def normal(text: str) -> str:
    """The text with full-width characters (`５`, `：`, `％`) and the typographic minus as their ASCII counterparts."""
    return text if text.isascii() else text.translate(_FULL_WIDTH)


@functools.lru_cache(maxsize=65536)
def spell(text: str) -> str:
    r"""An answer in one spelling: `\dfrac` and `½` are `\frac`, `\left(` is `(`, `≤` and `<=` are `\le`; dollars and spacing go."""
    text = normal(text)
    if not text.isascii():
        text = _ROOT.sub(r"\\sqrt{\1}", text).replace("√", r"\sqrt ").translate(_CHARACTERS)
    text = text.replace("\n", " ").replace("\t", " ").replace("~", " ")
    if "$" in text:
        text = _DOLLAR.sub(rf"\1{DOLLAR}", text)
    if "\\" in text:
        text = _SPACES.sub(lambda match: "" if match[0] == r"\!" else " ", text)
        text = _BRACES_ABOVE.sub(r"\\\1 ", _COLOUR.sub("", text))
        text = _COMMAND.sub(lambda match: _SYNONYMS.get(match[1], match[0]), text)
        text = _OVER.sub(r"\\frac{\1}{\2}", _CONSTANT.sub(r"\1", text))
    for sign, plain in _SIGNS:
        if sign in text:
            text = text.replace(sign, plain)
    return " ".join(text.split())
