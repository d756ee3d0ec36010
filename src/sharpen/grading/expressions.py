r"""Reading one mathematical expression, in LaTeX or plain text, as a tree.

A small grammar that says no to whatever it does not know: numbers, one-letter variables with subscripts, sums, products (also implicit),
powers, fractions, roots, absolute values, floors, factorials, binomials, percent and degree signs, and the elementary functions. `e` is
Euler's number and `i` the imaginary unit. `x^10` typed plainly is x to the tenth. What it refuses, math-verify may still read.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 1000
DEEPEST = 40


class UnreadableError(Exception):
    """The text is not an expression of this grammar."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an expression: a `number`, a `symbol`, or an operation on others.

    Attributes:
        op: `number`, `symbol`, `pi`, `e`, `i`, `infinity`, `+`, `*`, `/`, `^`, `negative`, `root`, `log`, or a function's name.
        args: what it operates on.
        value: a number's value.
        name: a symbol's name.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)
    name: str = ""

    def holds(self, *ops: str) -> bool:
        """Whether one of these operations occurs in it."""
        return self.op in ops or any(arg.holds(*ops) for arg in self.args)

    def symbols(self) -> frozenset[str]:
        """The names of its variables."""
        if self.op == "symbol":
            return frozenset({self.name})
        return frozenset().union(*(arg.symbols() for arg in self.args))


def number(value: Fraction | int) -> Node:
    """A number as a node."""
    return Node("number", value=Fraction(value))


_FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth ln log lg exp sqrt max min gcd lcm abs floor ceil cis"
FUNCTIONS = frozenset(_FUNCTIONS.split())
_SPELLINGS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_LETTERS = (
    r"\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \kappa \lambda \mu \nu \xi \rho \sigma \tau \phi \chi \psi \omega"
    r" \Delta \Gamma \Lambda \Omega \Phi \Sigma \Theta \ell"
)
_GREEK = frozenset(_LETTERS.split())
_CONSTANTS = {r"\pi": Node("pi"), "pi": Node("pi"), "e": Node("e"), "i": Node("i"), r"\infty": Node("infinity")}
_CONSTANTS |= {"infinity": Node("infinity"), "inf": Node("infinity")}
_TIMES = frozenset({"*", r"\times", r"\cdot"})
_DIVIDED = frozenset({"/", r"\div"})
_FENCES = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", "|": "|"}
_REPEATED = re.compile(r"\\(?:overline|bar|dot)\s*\{\s*(\d+)\s*\}|\\dot\s*(\d)(?!\d)")
_TOKEN = re.compile(
    r"\s*((?:\d{1,3}(?:\{,\}\d{3})+|\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+"
    r"|\\[A-Za-z]+|\\[%{}]|\*\*|[A-Za-z]+|[-+*/^_!%|(){}\[\]',])"
)
_DIGITS = re.compile(r"\.?\d")


@functools.lru_cache(maxsize=16384)
def read_expression(text: str) -> Node | None:
    """The tree of an expression that `spelling.spell` has spelled; None when the grammar does not know it."""
    if not text or len(text) > LONGEST:
        return None
    try:
        reader = _Reader(_tokens(text))
        node = reader.sum()
        return node if reader.at_end() else None
    except (UnreadableError, RecursionError):
        return None


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place = 0
    text = text.strip()
    while place < len(text):
        repeated = _REPEATED.match(text, place)
        if repeated and tokens and tokens[-1][-1] in ".0123456789" and "." in tokens[-1]:
            tokens[-1] += f"({repeated[1] or repeated[2]})"
            place = repeated.end()
            continue
        token = _TOKEN.match(text, place)
        if token is None:
            raise UnreadableError(text[place : place + 10])
        if _DIGITS.match(token[1]) and tokens and _DIGITS.match(tokens[-1]) and tokens[-2:-1] not in (["_"], [r"\frac"], [r"\binom"]):
            raise UnreadableError("two numbers in a row")
        tokens.extend(_letters(token[1]) if token[1].isalpha() else [token[1]])
        place = token.end()
        while place < len(text) and text[place] == " ":
            place += 1
    return tokens


def _letters(run: str) -> list[str]:
    """A run of letters: a function's name, a constant, or up to three variables side by side."""
    if run in FUNCTIONS or run in _CONSTANTS or run in _SPELLINGS:
        return [_SPELLINGS.get(run, run)]
    for name in ("sqrt", "sin", "cos", "tan", "log", "ln", "pi"):
        if run.endswith(name) and len(run) <= len(name) + 2:
            return [*run[: -len(name)], name]
        if run.startswith(name) and len(run) <= len(name) + 2:
            return [name, *run[len(name) :]]
    if len(run) > 3:
        raise UnreadableError(run)
    return list(run)


class _Reader:
    """Reads tokens by recursive descent."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0
        self.bars = 0

    def at_end(self) -> bool:
        return self.place >= len(self.tokens)

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token not in expected):
            raise UnreadableError(token)
        self.place += 1
        return token

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableError("too deep")
        terms = [self.product()]
        while self.peek() in ("+", "-"):
            sign = self.take()
            term = self.product()
            terms.append(Node("negative", (term,)) if sign == "-" else term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def product(self) -> Node:
        node = self.signed()
        while True:
            token = self.peek()
            if token in _TIMES:
                self.take()
                node = Node("*", (node, self.signed()))
            elif token in _DIVIDED:
                slash = self.take() == "/"
                divisor = self.signed()
                # A fraction's bar makes one number of two; ÷ is a step to carry out.
                node = Node("/", (node, divisor)) if slash else Node("*", (node, Node("/", (number(1), divisor))))
            elif self.starts_factor(token):
                node = self.juxtaposed(node, self.power())
            else:
                return node

    def juxtaposed(self, left: Node, right: Node) -> Node:
        r"""A mixed number, `2\frac{1}{3}`, or a product."""
        mixed = (
            self.is_integer(left)
            and right.op == "/"
            and all(self.is_integer(part) for part in right.args)
            and right.args[0].value < right.args[1].value
            and self.tokens[self.place - 1] != ")"
        )
        return Node("+", (left, right)) if mixed else Node("*", (left, right))

    @staticmethod
    def is_integer(node: Node) -> bool:
        return node.op == "number" and node.value.denominator == 1

    def starts_factor(self, token: str) -> bool:
        if not token or token in ")]},!%+-'":
            return False
        if token == "|":
            return self.bars == 0
        return token[0].isalnum() or token in _FENCES or token in _GREEK or token in _CONSTANTS or self.is_command(token)

    @staticmethod
    def is_command(token: str) -> bool:
        return token in (r"\frac", r"\sqrt", r"\binom") or token[1:] in FUNCTIONS or token[1:] in _SPELLINGS

    def signed(self) -> Node:
        if self.peek() == "-":
            self.take()
            self.depth += 1
            if self.depth > DEEPEST:
                raise UnreadableError("too deep")
            node = Node("negative", (self.signed(),))
            self.depth -= 1
            return node
        if self.peek() == "+":
            self.take()
            return self.power()
        return self.power()

    def power(self) -> Node:
        base = self.postfix(self.atom())
        if self.peek() in ("^", "**"):
            caret = self.take()
            exponent = self.argument() if caret == "^" else self.signed()
            return self.postfix(base if exponent.op == "degree" else Node("^", (base, exponent)), degree=exponent.op == "degree")
        return base

    def postfix(self, node: Node, *, degree: bool = False) -> Node:
        if degree:
            node = Node("degree", (node,))
        while self.peek() in ("!", "%", r"\%"):
            node = Node("factorial", (node,)) if self.take() == "!" else Node("/", (node, number(100)))
        return node

    def argument(self) -> Node:
        """What a power, a fraction or a root is given: a group in braces or one token; `^10` and `^-1` are taken whole."""
        token = self.peek()
        if token == r"\circ":
            self.take()
            return Node("degree")
        if token == "{":
            self.take()
            if self.peek() == r"\circ":
                self.take()
                self.take("}")
                return Node("degree")
            node = self.sum()
            self.take("}")
            return node
        if token == "-":
            return self.signed()
        return self.atom()

    def one_digit(self) -> Node:
        r"""The argument of `\frac` or `\sqrt`: a group, or one digit of a number, as in `\frac12`."""
        token = self.peek()
        if token.isdigit() and len(token) > 1:
            self.tokens[self.place] = token[1:]
            return number(int(token[0]))
        if token == "-":
            raise UnreadableError(token)
        return self.argument()

    def atom(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableError("too deep")
        node = self._atom()
        self.depth -= 1
        return node

    def _atom(self) -> Node:
        token = self.take()
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            return number(decimal(token))
        if token in _FENCES:
            return self.fenced(token)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        name = _SPELLINGS.get(token.removeprefix("\\"), token.removeprefix("\\"))
        if name in FUNCTIONS:
            return self.function(name)
        if token in (r"\frac", r"\binom"):
            first = self.one_digit()
            return Node("/" if token == r"\frac" else "binomial", (first, self.one_digit()))
        if token in _GREEK or (len(token) == 1 and token.isalpha()):
            return self.symbol(token)
        raise UnreadableError(token)

    def symbol(self, name: str) -> Node:
        if self.peek() == "_":
            self.take()
            place = self.place
            if self.peek() == "{":
                while self.take() != "}":
                    pass
            else:
                self.take()
            name += "_" + "".join(self.tokens[place : self.place]).strip("{}")
        return Node("symbol", name=name)

    def fenced(self, opening: str) -> Node:
        if opening == "|":
            self.bars += 1
            node = self.sum()
            self.bars -= 1
            self.take("|")
            return Node("abs", (node,))
        bars, self.bars = self.bars, 0
        node = self.sum()
        self.take(_FENCES[opening])
        self.bars = bars
        return Node("floor" if opening == r"\lfloor" else "ceil", (node,)) if opening[0] == "\\" else node

    def function(self, name: str) -> Node:
        if name == "sqrt":
            return self.root()
        exponent: Node | None = None
        base: Node | None = None
        while self.peek() in ("^", "_"):
            if self.take() == "^":
                exponent = self.argument()
            elif name == "log":
                base = self.one_digit() if self.peek().isdigit() and len(self.peek()) > 1 and self.follows_nothing() else self.argument()
            else:
                raise UnreadableError(name)
        if exponent is not None and exponent == Node("negative", (number(1),)):
            if name not in _INVERSES:
                raise UnreadableError(name)
            name, exponent = _INVERSES[name], None
        args = self.function_arguments()
        node = Node(name, (*args, base)) if base is not None else Node(name, args)
        if exponent is not None:
            node = Node("^", (node, exponent))
        return node

    def follows_nothing(self) -> bool:
        r"""Whether `\log_28` must be base 2 of 8: there is nothing after the number."""
        return self.place + 1 >= len(self.tokens)

    def function_arguments(self) -> tuple[Node, ...]:
        if self.peek() in ("(", "[", "{"):
            opening = self.take()
            bars, self.bars = self.bars, 0
            args = [self.sum()]
            while self.peek() == ",":
                self.take()
                args.append(self.sum())
            self.take(_FENCES[opening])
            self.bars = bars
            return tuple(args)
        node = self.signed() if self.peek() == "-" else self.power()
        while True:
            token = self.peek()
            if token == "/" and self.place + 1 < len(self.tokens):  # sin x/2 is read by nobody in one way
                return (node,)
            if self.starts_factor(token) and token.removeprefix("\\") not in FUNCTIONS and token not in ("(", "["):
                node = self.juxtaposed(node, self.power())
            else:
                return (node,)

    def root(self) -> Node:
        if self.peek() == "[":
            self.take()
            index = self.sum()
            self.take("]")
            return Node("root", (self.one_digit(), index))
        if self.peek() == "(":
            self.take()
            node = self.sum()
            self.take(")")
            return Node("root", (node, number(2)))
        return Node("root", (self.one_digit(), number(2)))


def decimal(text: str) -> Fraction:
    """A decimal, with separators; `0.1(6)` has a recurring 6."""
    text = text.replace("{,}", "").replace(",", "")
    plain, _, repeated = text.rstrip(")").partition("(")
    value = Fraction(plain.removesuffix(".") or 0) if plain != "." else Fraction(0)
    if not repeated:
        return value
    places = len(plain.partition(".")[2])
    return value + Fraction(int(repeated), (10 ** len(repeated) - 1) * 10**places)
