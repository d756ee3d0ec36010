r"""Reading an answer's text as one of the forms of `forms.py`.

Each `_try` function reads one kind and gives None for any other; `_ATTEMPTS` has them in order. What none of them reads is `Foreign`.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

from sharpen.grading import numbers, split
from sharpen.grading.expressions import Node, number, read_expression
from sharpen.grading.falsehood import is_false
from sharpen.grading.forms import (
    Based,
    Clock,
    Congruence,
    Date,
    Foreign,
    Form,
    Matrix,
    Named,
    Parts,
    Ratio,
    Relation,
    Value,
    Words,
)
from sharpen.grading.numerals import number_in_words
from sharpen.grading.sets import read_set
from sharpen.grading.spelling import spell
from sharpen.grading.units import DEGREE, TABLE, Unit, read_unit

_DRESS = re.compile(r"\\(?:text|mathbf|emph|underline|mathcal)\s*\{([^{}]*)\}")
_WHOLE_DRESS = re.compile(r"\\(?:text|mathbf|emph|underline|overline)\s*\{([^{}]*)\}\.?")
_PREFACE = re.compile(r"(?:\\text\s*\{\s*)?(?:the )?(?:final |correct )?answer(?: is|:)\s*\}?\s*|\\approx\s*", re.IGNORECASE)
_WORDS = re.compile(r"[A-Za-z]+(?:[ '-]+[A-Za-z]+)*\.?")
_ARTICLE = re.compile(r"(?:an?|the) (?=\w)")
_NONE = frozenset({"no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set", "none"})
_AND = r"\s*(?:\band\b|\bor\b|\\text\s*\{\s*,?\s*(?:and|or)\s*\}|和|或|与|及|、)\s*"
_OR = re.compile(r"\bor\b|或")
_SEPARATOR = split.by(rf"\s*[,;]{_AND}|{_AND}|;\s*|,\s*")
_THOUSANDS = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d,])")
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|\+/-")
_SIGN = split.by(r"=|<|>|\\(?:le|ge|ne|equiv|in)(?![A-Za-z])")
_SIGNS = {"=": "=", "<": "<", ">": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\equiv": "=", r"\in": "in"}
_NAME = re.compile(
    r"\|?\\?[A-Za-z]+'*(?:_\{?\w+\}?)?(?:'*|\^\{-1\}|\^-1)\|?(?:\s*\([^()]*\))?|\\frac\s*\{d[A-Za-z]?\}\s*\{d[A-Za-z]\}(?:[A-Za-z]|\([^()]*\))?|\\(?:angle|text|triangle|overline)\b.*|[A-Z]{2,3}|m\\angle.*"
)
_MATRIX = re.compile(r"(.*?)\\begin\s*\{([pbvBV]?matrix|array)\}(?:\s*\{[clr|]*\})?(.*)\\end\s*\{\2\}")
_TRANSPOSED = re.compile(r"(.*\\end\s*\{[a-zA-Z]*\})\s*\^\s*\{?\s*(?:T|\\top|\\intercal)\s*\}?")
_CASES = re.compile(r"\\begin\s*\{cases\}(.*)\\end\s*\{cases\}\.?")
_BASE = re.compile(r"(?:\\text\s*\{)?\(?([0-9A-Za-z]{1,60})\)?\}?_\s*(?:\{\s*)?(?:\\text\s*\{\s*)?\(?(\d{1,2}|[a-z]+)\)?\s*\}*")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)\s*(?:\\text\s*\{)?\s*([AaPp])\.?\s?[Mm]\.?\s*\}?")
_TIME = re.compile(r"\d{1,2}:[0-5]\d")
_MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"]
_DATE = re.compile(r"(?:([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?|(\d{1,2})(?:st|nd|rd|th)? ([A-Za-z]{3,9})\.?)(?:,? (\d{3,4}))?")
_MODULO = re.compile(r"(.*?)\s*(?:\\pmod|\\bmod|\\mod|\(\s*mod\b|\bmod\b)\s*\{?\s*([^{}()]+?)\s*\}?\s*\)?")
_RATIO = split.by(r"\s*:\s*|\s*\\text\s*\{\s*to\s*\}\s*|\s+to\s+")
_QUANTITIES = re.compile(r"(\d+(?:\.\d+)?)\s*(\\text\s*\{[A-Za-z. ]+\}|[A-Za-z]+|[\u4e00-\u9fff]+)\s*(?:,|and|又)?\s*")
_UNIT_AFTER = re.compile(r"(.*?[\d)}A-Za-z!])\s*((?:\\text\s*\{[^{}]*\}(?:\s*\^\s*\{?-?\d\}?)?(?:\s*(?:/|\\cdot)?\s*)?)+)")
_FRACTION_UNIT = re.compile(
    r"(.*?[\d)}])\s*(\\frac\s*\{\s*\\text\s*\{[A-Za-z ]+\}(?:\^\{?\d\}?)?\s*\}\s*\{\s*\\text\s*\{[A-Za-z ]+\}(?:\^\{?\d\}?)?\s*\})"
)
_DEGREES = re.compile(r"(.*?)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)\s*([CF])?")
_OUT_OF = re.compile(r"(\d+)\s*(?:\\text\s*\{)?\s*(?:out of|in)\s*\}?\s*(\d+)")
_UNIT_VECTOR = re.compile(r"\\(?:text|mathbf|hat|vec)\s*\{\s*(?:\\text\s*\{)?\\?([ijk])(?:math)?\s*\}+|\\mathbf\s*([ijk])(?![A-Za-z])")
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16}


@functools.lru_cache(maxsize=32768)
def read(text: str) -> Form | None:
    """What an answer says; None for an empty one."""
    bare = _undressed(text)
    if not bare:
        return None
    return _try_unit_vectors(text) or _read(bare, depth=0)


def read_words(text: str) -> Words | None:
    """The words that an answer is; None when it may be anything else. Takes no time."""
    words = _try_words(_undressed(text), 0)
    return words if isinstance(words, Words) else None


def _undressed(text: str) -> str:
    """The answer in one spelling, without what says that it is one, and without fonts around all of it."""
    text = spell(text)
    text = _PREFACE.sub("", text, count=1) if _PREFACE.match(text) else text
    while (dressed := _WHOLE_DRESS.fullmatch(text)) and not text.startswith(r"\overline"):
        text = dressed[1].strip()
    return _without_approximation(text).strip(" .;,")


def _without_approximation(text: str) -> str:
    r"""`2\sqrt5 \approx 4.47` says the first; `x \approx 4.47` the second."""
    first, _, rest = text.partition(r"\approx")
    return rest.strip() if rest and _NAME.fullmatch(first.strip()) else first


def _read(text: str, depth: int) -> Form:
    if depth > 6 or not text:
        return Foreign(text)
    for attempt in _ATTEMPTS:
        if (form := attempt(text, depth)) is not None:
            return form
    return Foreign(text)


# --- one value -----------------------------------------------------------------------------------------------------------------------


def _try_number(text: str, depth: int) -> Form | None:
    quantity = numbers.quantity(text)
    return None if quantity is None else Value(number(quantity.value), quantity.unit)


def _try_words(text: str, depth: int) -> Form | None:
    if text == r"\emptyset" or text == r"\{\}" or text == r"\{ \}":
        return Parts("set", ())
    inner = _DRESS.sub(r"\1", text).strip()
    if (value := number_in_words(inner)) is not None:
        return Value(number(value))
    inner = inner.removeprefix("(").removesuffix(")").strip()
    bare = inner == text and inner.lower() not in ("yes", "no")
    if not _WORDS.fullmatch(inner) or (bare and (len(inner) < 4 or read_expression(inner) is not None)):
        return None
    words = " ".join(inner.rstrip(".").lower().split())
    if words in _NONE:
        return Parts("set", ())
    if re.search(r"\b(?:and|or)\b", words) or words in ("infinity", "inf"):
        return None
    return Words(_ARTICLE.sub("", words, count=1) if _ARTICLE.match(words) else words)


def _try_cases(text: str, depth: int) -> Form | None:
    whole = _CASES.fullmatch(text)
    if whole is None:
        return None
    args: list[Node] = []
    for row in whole[1].split(r"\\"):
        if not row.strip(" .,"):
            continue
        left, _, right = row.partition("&")
        value = read_expression(left.strip(" ,."))
        condition = _condition(right.strip(" ,."))
        if value is None or condition is None:
            return None
        args += [value, condition]
    return Value(Node("cases", tuple(args))) if args else None


def _condition(text: str) -> Node | None:
    text = re.sub(r"^(?:if|for|when)\b\s*", "", _DRESS.sub(lambda match: f" {match[1]} ", text).strip()).strip()
    if text.lower() in ("otherwise", "else"):
        return Node("otherwise")
    relation = _relation(text)
    return Node("condition", relation.sides, name=" ".join(relation.signs)) if relation else None


def _try_quantities(text: str, depth: int) -> Form | None:
    """`1 hour 30 minutes`, `5 feet 6 inches`: numbers with known units of one kind, summed in the last one."""
    text = _DRESS.sub(r"\1", text)
    found = list(_QUANTITIES.finditer(text))
    if len(found) < 2 or "".join(match[0] for match in found) != text:
        return None
    units = [read_unit(match[2]) for match in found]
    last = units[-1]
    if last is None or any(unit is None or unit.dimensions != last.dimensions for unit in units):
        return None
    total = sum((Fraction(match[1]) * unit.factor for match, unit in zip(found, units, strict=True) if unit), Fraction(0))
    return Value(number(total / last.factor), last)


def _try_expression(text: str, depth: int) -> Form | None:
    """An expression, with or without a unit after it."""
    if degrees := _DEGREES.fullmatch(text):
        scale = TABLE["celsius"] if degrees[2] == "C" else TABLE["fahrenheit"] if degrees[2] == "F" else DEGREE
        if (node := read_expression(degrees[1])) is not None and not node.holds("degree", "sin", "cos", "tan", "cot", "sec", "csc", "cis"):
            return Value(node, scale)
    if (node := read_expression(text)) is not None:
        return Value(node)
    for pattern in (_FRACTION_UNIT, _UNIT_AFTER):
        if after := pattern.fullmatch(text):
            node, words = read_expression(after[1]), _DRESS.sub(r" \1 ", after[2]).replace(r"\frac", " ")
            if node is not None and (numbers.is_only_unit(words) or _says_again(words, node)):
                return Value(node, _radians(read_unit(after[2]), after[2]))
    if (share := _OUT_OF.fullmatch(text)) and int(share[2]):
        return Value(number(Fraction(int(share[1]), int(share[2]))))
    return None


def _says_again(words: str, node: Node) -> bool:
    r"""Whether words after a number are the number itself, `10 \text{ (ten)}`."""
    value = number_in_words(words.strip(" ().").lower())
    return value is not None and node == number(value)


def _radians(unit: Unit | None, text: str) -> Unit | None:
    return None if re.search(r"\brad", text) else unit


def _try_based(text: str, depth: int) -> Form | None:
    based = _BASE.fullmatch(text)
    if based is None or not (based[1][0].isdigit() or (based[1].isupper() and len(based[1]) > 1)):
        return None
    base = int(based[2]) if based[2].isdigit() else _BASES.get(based[2], 0)
    if not 2 <= base <= 36:
        return None
    return Based(based[1].upper().lstrip("0") or "0", base)


def _try_time(text: str, depth: int) -> Form | None:
    if clock := _CLOCK.fullmatch(text):
        return Clock(int(clock[1]) % 12 * 60 + int(clock[2]), clock[3].lower() + "m")
    date = _DATE.fullmatch(_DRESS.sub(r"\1", text))
    if date is None:
        return None
    name = (date[1] or date[4]).lower()
    month = next((index for index, full in enumerate(_MONTHS, 1) if name in (full, full[:3])), None)
    return Date(month, int(date[2] or date[3]), int(date[5]) if date[5] else None) if month else None


def _try_modulo(text: str, depth: int) -> Form | None:
    modulo = _MODULO.fullmatch(text)
    if modulo is None or "," in text:
        return None
    value, modulus = read_expression(re.split(r"\\equiv|=", modulo[1])[-1].strip()), read_expression(modulo[2])
    if value is None or modulus is None:
        return None
    head = re.split(r"\\equiv|=", modulo[1])
    congruence = Congruence(value, modulus)
    return Named(head[0].strip(), congruence) if len(head) == 2 else congruence


def _try_ratio(text: str, depth: int) -> Form | None:
    parts, _ = split.cut(text, _RATIO)
    if len(parts) < 2:
        return None
    nodes = tuple(Node("symbol", name=part) if part == r"\ldots" else read_expression(part) for part in parts)
    if any(node is None for node in nodes):
        return None
    return Ratio(tuple(node for node in nodes if node), bool(_TIME.fullmatch(text)))


# --- several values ------------------------------------------------------------------------------------------------------------------


def _try_list(text: str, depth: int) -> Form | None:
    guarded = _THOUSANDS.sub(lambda match: match[0].replace(",", "{,}"), text)
    parts, separators = split.cut(guarded, _SEPARATOR)
    if not separators or any(not part for part in parts):
        return None
    items: list[Form] = []
    for part in parts:
        form = _read(part, depth + 1)
        items.extend(form.items if isinstance(form, Parts) and form.kind == "list" else (form,))
    if any(_OR.search(separator) for separator in separators) and (union := read_set(text)) is not None:
        return union
    return Parts("list", tuple(_spread_names(items)))


def _spread_names(items: list[Form]) -> list[Form]:
    """`x = 3, -3` names x in all its parts."""
    if isinstance(items[0], Named) and not any(isinstance(item, Named) for item in items[1:]):
        return [items[0], *(Named(items[0].name, item) for item in items[1:])]
    return items


def _try_plus_minus(text: str, depth: int) -> Form | None:
    if not _PLUS_MINUS.search(text) or len(split.cut(text, _SEPARATOR)[0]) > 1 or split.bracketed(text):
        return None
    both = [_read(_PLUS_MINUS.sub(plus, text).replace(r"\mp", minus).strip(), depth + 1) for plus, minus in (("+", "-"), ("-", "+"))]
    return Parts("list", tuple(both))


def _try_brackets(text: str, depth: int) -> Form | None:
    inside = split.bracketed(text)
    if inside is None:
        return None
    opening, content, closing = inside
    parts, separators = split.cut(content, split.by(r"\s*[,;]\s*"))
    if any(not part for part in parts) or (opening, closing) not in (("(", ")"), ("[", "]"), (r"\{", r"\}"), (r"\langle", r"\rangle")):
        return None
    if not separators and opening != r"\{":
        return None
    kind = {"(": "tuple", "[": "box", r"\{": "set", r"\langle": "tuple"}[opening]
    items: list[Form] = []
    for part in parts:
        form = _read(part, depth + 1)
        items.extend(form.items if isinstance(form, Parts) and form.kind == "list" else (form,))
    return Parts(kind, tuple(items))


def _try_set(text: str, depth: int) -> Form | None:
    return read_set(text)


def _try_matrix(text: str, depth: int) -> Form | None:
    inside = split.bracketed(text)
    if inside is not None and inside[1].startswith(r"\begin") and inside[0] in ("(", "["):
        text = inside[1]
    if transposed := _TRANSPOSED.fullmatch(text):
        before = _try_matrix(transposed[1].strip(), depth)
        return Matrix(tuple(zip(*before.rows, strict=True))) if isinstance(before, Matrix) else None
    matrix = _MATRIX.fullmatch(text)
    if matrix is None or matrix[2] in ("vmatrix", "Vmatrix"):
        return None
    factor = read_expression(matrix[1].strip()) if matrix[1].strip() not in ("", "-") else number(-1 if matrix[1].strip() else 1)
    rows: list[tuple[Node, ...]] = []
    for row in matrix[3].split(r"\\"):
        if not row.strip():
            continue
        entries = [read_expression(entry.strip()) for entry in row.split("&")]
        if factor is None or any(entry is None for entry in entries):
            return None
        rows.append(tuple(entry if factor == number(1) else Node("*", (factor, entry)) for entry in entries if entry))
    return Matrix(tuple(rows)) if rows and len({len(row) for row in rows}) == 1 else None


def _try_unit_vectors(text: str) -> Form | None:
    r"""`\mathbf{i} + 2\mathbf{j}`: the components are what is left when one unit vector is 1 and the others 0."""
    names = {match[1] or match[2] for match in _UNIT_VECTOR.finditer(text)}
    if len(names) < 2:
        return None
    node = read_expression(spell(_UNIT_VECTOR.sub(lambda match: rf" v_{{{match[1] or match[2]}}} ", text)))
    if node is None:
        return None
    axes = "ijk" if "k" in names else "ij"
    return Parts("tuple", tuple(Value(_put(node, {f"v_{axis}": int(axis == one) for axis in axes})) for one in axes))


def _put(node: Node, values: dict[str, int]) -> Node:
    """The expression with numbers for some variables, without terms that become 0 and factors that become 1."""
    if node.op == "symbol" and node.name in values:
        return number(values[node.name])
    args = tuple(_put(arg, values) for arg in node.args)
    zero, one = number(0), number(1)
    if node.op in ("*", "/", "negative") and zero in args[:2]:
        return zero
    left = tuple(arg for arg in args if arg != {"+": zero, "*": one}.get(node.op))
    if node.op in ("+", "*") and len(left) < 2:
        return left[0] if left else zero if node.op == "+" else one
    return Node(node.op, left, node.value, node.name)


# --- equations and inequalities ------------------------------------------------------------------------------------------------------


def _try_relation(text: str, depth: int) -> Form | None:
    parts, signs = split.cut(text, _SIGN)
    if not signs or any(not part for part in parts):
        return None
    kinds = [_SIGNS[sign] for sign in signs]
    if kinds == ["in"]:
        return Named(parts[0], _read(parts[1], depth + 1))
    if "in" in kinds:
        return None
    if set(kinds) != {"="}:
        return _relation(text)
    whole = _relation(text)
    if is_false(parts) and whole is not None:
        return whole
    if len(parts) > 2:  # a chain of steps ends in what it says
        parts = [parts[0], parts[-1]]
    left, right = parts
    equation = _relation(f"{left} = {right}")
    if _NAME.fullmatch(right) and not _NAME.fullmatch(left) and len(right) < 3:
        left, right = right, left
    named = _NAME.fullmatch(left) is not None or (split.bracketed(left) is not None and "," in left)
    value = _read(right, depth + 1)
    if named or equation is None or not any(node.symbols() for node in equation.sides):
        return Named(left if named else "", value, equation)
    return equation


def _relation(text: str) -> Relation | None:
    parts, signs = split.cut(text, _SIGN)
    sides = [read_expression(part) for part in parts]
    if not signs or any(side is None for side in sides) or any(sign == r"\in" for sign in signs):
        return None
    return Relation(tuple(side for side in sides if side), tuple(_SIGNS[sign] for sign in signs))


_ATTEMPTS = (
    _try_number,
    _try_words,
    _try_cases,
    _try_time,
    _try_quantities,
    _try_plus_minus,
    _try_modulo,
    _try_list,
    _try_set,
    _try_relation,
    _try_brackets,
    _try_matrix,
    _try_based,
    _try_expression,
    _try_ratio,
)
