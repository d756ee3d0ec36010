"""Whether two expressions have the same value: by evaluating both at fixed points, to 50 digits.

Disagreement decides at once. Agreement is checked with more digits, twice as many as the largest number on the way has: 2^2024 and one
less agree to 609 digits, and a rounding error of zero shrinks with the digits, which 1/2004! does not. What still agrees at several
unrelated points is taken for equal.
Towers of powers and factorials are bounded before they are computed, so that nothing here takes long.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from sharpen.grading.expressions import Node

DIGITS = 50
MOST_DIGITS = 20_000
AGREEING_DIGITS = 40
LARGEST_BITS = 1e6
"""A number of more binary digits, or with a larger exponent, is not computed."""
POINTS = 5


class TooLargeError(Exception):
    """A number that is too large to compute."""


class UndefinedError(Exception):
    """An expression without a value at a point."""


Point = Mapping[str, Any]


@functools.cache
def context(digits: int) -> Any:
    """An mpmath context of its own, of this many digits: the shared one may be changed by others."""
    import mpmath

    own = mpmath.MPContext()
    own.dps = digits
    return own


def equal(left: Node, right: Node) -> bool:
    """Whether two expressions are equal for all values of their variables; a logarithm without a base may have base 10 or e.

    Raises:
        TooLargeError: when one of them cannot be computed.
    """
    if left == right:
        return True
    bases = ("e", "ten") if left.holds("log") or right.holds("log") else ("e",)
    return any(_equal(left, right, base) for base in bases)


def value(node: Node, *, digits: int = DIGITS, at: Point | None = None) -> Any:
    """The value of an expression, an mpmath number.

    Raises:
        TooLargeError: when it cannot be computed.
        UndefinedError: when it has none there, or depends on a variable that `at` does not give.
    """
    return _Evaluator(context(digits), at or {}, "e").value(node)


def is_constant(node: Node) -> bool:
    """Whether an expression has no variables."""
    return not node.symbols()


def points(names: frozenset[str], *, whole: bool = False) -> list[dict[str, Fraction]]:
    """Fixed values for the variables, unlike each other: positive, negative and mixed, or positive whole numbers."""
    out = []
    for index in range(POINTS):
        point = {}
        for name in names:
            digest = hashlib.blake2b(f"{index} {name}".encode(), digest_size=8).digest()
            if whole:
                point[name] = Fraction(2 + digest[0] % 23 + 3 * index)
            else:
                size = Fraction(int.from_bytes(digest[:4], "big") % 900_000 + 200_003, 400_009)
                negative = index == 2 or (index > 2 and digest[7] % 2 == 1)
                point[name] = -size if negative else size
        out.append(point)
    return out


def close(left: Any, right: Any, digits: int = AGREEING_DIGITS) -> bool:
    """Whether two mpmath numbers agree to this many digits, relative to the larger one."""
    own = getattr(left, "context", context(DIGITS))
    if left == right:
        return True
    if own.isinf(left) or own.isinf(right) or own.isnan(left) or own.isnan(right):
        return False
    return bool(abs(left - right) <= own.mpf(10) ** -digits * max(abs(left), abs(right)))


def _equal(left: Node, right: Node, base: str) -> bool:
    names = left.symbols() | right.symbols()
    whole = any(node.holds("factorial", "binomial", "gcd", "lcm") or _alternates(node) for node in (left, right))
    complex_ = left.holds("i", "cis") or right.holds("i", "cis")
    judged = False
    unreal = []
    at = points(names, whole=whole) if names else [{}]
    if names and (left.holds("cases") or right.holds("cases")):
        at += [dict.fromkeys(names, Fraction(half, 2)) for half in range(-24, 25)]
    for point in at:
        values = [_at(node, point, base, DIGITS)[0] for node in (left, right)]
        if values[0] is None or values[1] is None:
            if values[0] is not values[1] and not names:
                return False
            continue
        if not _same(left, right, values[0], values[1], point, base, real=bool(names) and not complex_):
            return False
        if complex_ or not names or not (_imaginary(values[0]) or _imaginary(values[1])):
            judged = True
        else:
            unreal.append(((values[0], values[1]), point))
    if judged or not unreal:
        return judged
    # Real at none of the points, such as the root of y - 100: by the principal values.
    return all(_same(left, right, a, b, point, base, real=False) for (a, b), point in unreal)


def _same(left: Node, right: Node, a: Any, b: Any, point: Point, base: str, *, real: bool) -> bool:
    """Whether two values at a point are the same; of real functions, both must be defined there or neither."""
    if real and (_imaginary(a) or _imaginary(b)):
        return _imaginary(a) and _imaginary(b)
    tiny = context(DIGITS).mpf(10) ** -20
    if a == b and context(DIGITS).isinf(a):
        return True
    if max(abs(a), abs(b)) > tiny and not close(a, b, digits=20):
        return False
    largest = max(_at(node, point, base, DIGITS)[1] for node in (left, right))
    size = math.ceil(largest * math.log10(2))  # decimal digits of the largest number on the way, or of its inverse
    digits = _rounded_up(100 + 2 * size)
    if digits > MOST_DIGITS:
        raise TooLargeError(f"{size} digits")
    finer = [_at(node, point, base, digits)[0] for node in (left, right)]
    if finer[0] is None or finer[1] is None:
        return False
    noise = context(digits).mpf(10) ** (size + 20 - digits)
    if any(abs(value) <= noise for value in finer):
        return all(abs(value) <= noise for value in finer)
    return close(finer[0], finer[1], digits=digits - size - 40)


def _rounded_up(digits: int) -> int:
    """At least this many digits, by steps of a power of two: each has a context that is kept."""
    return 128 << max(0, math.ceil(math.log2(digits / 128)))


def _imaginary(number: Any) -> bool:
    return hasattr(number, "imag") and abs(number.imag) > 1e-25 * (1 + abs(number.real))


def _alternates(node: Node) -> bool:
    """Whether a negative number is raised to a power with a variable in it, as in `(-1)^n`: only whole powers are meant."""
    if node.op == "^" and node.args[0].op == "negative" and is_constant(node.args[0]) and not is_constant(node.args[1]):
        return True
    return any(_alternates(arg) for arg in node.args)


def _at(node: Node, point: Point, base: str, digits: int) -> tuple[Any, int]:
    """The value at a point, None where there is none, and the binary digits of the largest number on the way, or of its inverse."""
    evaluator = _Evaluator(context(digits), point, base)
    try:
        return evaluator.value(node), evaluator.largest
    except UndefinedError:
        return None, evaluator.largest


class _Evaluator:
    """Evaluates nodes at a point."""

    def __init__(self, own: Any, point: Point, base: str) -> None:
        self.own = own
        self.point = point
        self.base = base
        self.largest = 0

    def value(self, node: Node) -> Any:
        own = self.own
        match node.op:
            case "number":
                return own.mpf(node.value.numerator) / node.value.denominator
            case "symbol":
                return self.symbol(node.name)
            case "pi":
                return +own.pi
            case "e":
                return +own.e
            case "i":
                return own.j
            case "infinity":
                return own.inf
            case "numeric":
                return own.mpf(node.name)
            case "cases":
                return self.cases(node)
        args = [self.value(arg) for arg in node.args]
        try:
            out = self.operation(node, args)
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            raise UndefinedError(node.op) from error
        if own.isnan(out):
            raise UndefinedError(node.op)
        if out and not own.isinf(out):
            self.largest = max(self.largest, abs(int(own.mag(out))))
        return out

    def symbol(self, name: str) -> Any:
        if name not in self.point:
            raise UndefinedError(name)
        at = self.point[name]
        return self.own.mpf(at.numerator) / at.denominator if isinstance(at, Fraction) else at

    def operation(self, node: Node, args: list[Any]) -> Any:
        match node.op:
            case "+":
                return functools.reduce(lambda a, b: a + b, args)
            case "negative":
                return -args[0]
            case "*":
                return args[0] * args[1]
            case "/":
                return args[0] / args[1]
            case "^":
                return self.power(node, *args)
            case "root":
                return self.root(*args)
            case "degree":
                return args[0] * self.own.pi / 180
            case "factorial" | "binomial":
                if any(not self.own.isint(arg) or abs(arg) > LARGEST_BITS for arg in args):
                    raise TooLargeError(node.op) if abs(args[0]) > LARGEST_BITS else UndefinedError(node.op)
                return self.own.factorial(args[0]) if node.op == "factorial" else self.own.binomial(*args)
            case "log":
                return self.logarithm(*args)
        function = self.functions.get(node.op)
        if function is None:
            raise UndefinedError(node.op)
        if abs(args[0]) > 1e9 and node.op != "ln" and not self.own.isinf(args[0]):
            self.check_size(args[0], node.op)
        return function(*args)

    def check_size(self, argument: Any, op: str) -> None:
        if op in ("exp", "sinh", "cosh", "cis", "sin", "cos", "tan", "cot", "sec", "csc", "tanh", "coth"):
            raise TooLargeError(op)

    @functools.cached_property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        own = self.own
        plain = ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "ln", "exp", "floor", "ceil"]
        out = {name: getattr(own, name) for name in plain}
        out |= {"arcsin": own.asin, "arccos": own.acos, "arctan": own.atan, "abs": abs, "lg": own.log10, "cis": own.expj}
        out |= {"max": max, "min": min, "gcd": self.whole(math.gcd), "lcm": self.whole(math.lcm)}
        return out

    def whole(self, function: Callable[..., int]) -> Callable[..., Any]:
        def apply(*args: Any) -> Any:
            if any(not self.own.isint(arg) or abs(arg) > 10**40 for arg in args):
                raise UndefinedError("gcd")
            return self.own.mpf(function(*(int(arg) for arg in args)))

        return apply

    def logarithm(self, argument: Any, base: Any = None) -> Any:
        if base is None:
            return self.own.log10(argument) if self.base == "ten" else self.own.ln(argument)
        return self.own.ln(argument) / self.own.ln(base)

    def power(self, node: Node, base: Any, exponent: Any) -> Any:
        if base == 0 and self.own.re(exponent) <= 0:
            raise UndefinedError("0^0")
        if not (self.own.isinf(base) or self.own.isinf(exponent)) and base not in (0, 1, -1):
            # The size of the result in bits: |exponent| · |log2 |base||.
            bits = self.own.mag(exponent) + self.own.mag(abs(self.own.ln(abs(base))) or 1)
            if bits > math.log2(LARGEST_BITS):
                raise TooLargeError("^")
        odd = _odd_root(node.args[1])
        if odd is not None and self.own.im(base) == 0 and self.own.re(base) < 0:
            return (-1 if odd.numerator % 2 else 1) * (-base) ** exponent
        return base**exponent

    def root(self, radicand: Any, index: Any) -> Any:
        if index == 2:
            return self.own.sqrt(radicand)
        if not self.own.isint(index) or not 0 < index < 1000:
            raise UndefinedError("root")
        if int(index) % 2 and self.own.im(radicand) == 0 and self.own.re(radicand) < 0:
            return -self.own.root(-radicand, int(index))
        return self.own.root(radicand, int(index))

    def cases(self, node: Node) -> Any:
        """The value of the first case whose condition holds: args alternate between a value and its condition."""
        for outcome, condition in zip(node.args[::2], node.args[1::2], strict=True):
            if self.holds(condition):
                return self.value(outcome)
        raise UndefinedError("cases")

    def holds(self, condition: Node) -> bool:
        if condition.op == "otherwise":
            return True
        sides = [self.value(arg) for arg in condition.args]
        if any(_imaginary(side) for side in sides):
            raise UndefinedError("condition")
        signs = condition.name.split()
        return all(compare(left, right, sign) for left, right, sign in zip(sides, sides[1:], signs, strict=False))


def compare(left: Any, right: Any, sign: str) -> bool:
    """Whether a relation holds between two real numbers; `sign` is one of `< > <= >= = !=`."""
    same = close(left, right) or abs(left - right) < 1e-40
    left, right = getattr(left, "real", left), getattr(right, "real", right)
    match sign:
        case "=":
            return same
        case "!=":
            return not same
        case "<":
            return not same and left < right
        case ">":
            return not same and left > right
        case "<=":
            return same or left < right
    return same or left > right


def _odd_root(exponent: Node) -> Fraction | None:
    """The exponent as a fraction with an odd denominator other than 1, as in `x^{1/3}`; None for any other."""
    if exponent.op == "/" and all(arg.op == "number" and arg.value.denominator == 1 for arg in exponent.args) and exponent.args[1].value:
        ratio = exponent.args[0].value / exponent.args[1].value
        return ratio if ratio.denominator % 2 and ratio.denominator > 1 else None
    return None
