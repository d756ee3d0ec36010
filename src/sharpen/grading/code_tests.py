r"""The tests of a code problem: reading them from its `meta`, and comparing what a program prints.

tests         [{"input": "2 3\n", "output": "5\n"}, ...]   a script: standard input and output
              ["assert add(2, 3) == 5", ...]                statements, run in order; imports and helpers may be among them
              "def check(candidate): ..."                   a test function, `check` or `test_...`, or statements in one text
test          the same as `tests`, as HumanEval names it
entry_point   the function that `check` is called with; it also counts as the program's where it has the name of a built-in
time_limit    seconds for each input, or for all statements together; 10
tolerance     numbers in an output may differ by this, absolutely or relatively; without it they may not
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_SECONDS = 10.0
_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class CodeTests:
    """The tests of a problem: either `cases` or `statements`.

    Attributes:
        cases: pairs of standard input and expected standard output.
        statements: Python code, each run after the one before.
        names: what the statements expect of the program.
        seconds: for each case, or for all statements together.
        tolerance: of numbers in outputs, None for none.
    """

    cases: tuple[tuple[str, str], ...] = ()
    statements: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    seconds: float = DEFAULT_SECONDS
    tolerance: float | None = None


def read_tests(meta: Mapping[str, Any]) -> CodeTests:
    """The tests in a problem's `meta`.

    Raises:
        ValueError: they cannot be read; the message begins with the field.
    """
    field = "tests" if "tests" in meta or "test" not in meta else "test"
    tests = meta.get(field)
    seconds = _number(meta, "time_limit", above=0.0)
    tolerance = _number(meta, "tolerance", above=-math.inf)
    seconds = DEFAULT_SECONDS if seconds is None else seconds
    if isinstance(tests, list) and tests and isinstance(tests[0], Mapping):
        return CodeTests(cases=tuple(_case(f"{field}[{i}]", test) for i, test in enumerate(tests)), seconds=seconds, tolerance=tolerance)
    if isinstance(tests, str):
        tests = [tests]
    if not isinstance(tests, list) or not tests:
        got = "nothing" if tests is None else "an empty list" if tests == [] else type(tests).__name__
        raise ValueError(f'{field}: expected a list of {{"input": ..., "output": ...}}, a list of assert statements or a text; got {got}')
    trees = [_tree(f"{field}[{i}]" if len(tests) > 1 else field, test) for i, test in enumerate(tests)]
    if not any(isinstance(node, (ast.Assert, ast.Raise)) for tree in trees for node in ast.walk(tree)):
        raise ValueError(f"{field}: there is no assert statement, so any program would pass")
    entry = meta.get("entry_point")
    if entry is not None and not (isinstance(entry, str) and entry.isidentifier()):
        raise ValueError(f"entry_point: expected the name of a function, got {entry!r:.60}")
    calls = _calls(field, trees, entry)
    statements = [*tests[:-1], "\n".join([tests[-1], *calls])]
    return CodeTests(statements=tuple(statements), names=_names(trees, entry), seconds=seconds, tolerance=tolerance)


def _number(meta: Mapping[str, Any], field: str, *, above: float) -> float | None:
    value = meta.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= above or value < 0:
        raise ValueError(f"{field}: expected a {'positive ' if above == 0 else ''}number, got {value!r:.60}")
    return float(value)


def _case(field: str, test: Any) -> tuple[str, str]:
    if not isinstance(test, Mapping):
        raise ValueError(f'{field}: expected {{"input": ..., "output": ...}} as the first one, got {type(test).__name__}')
    for key in ("input", "output"):
        if not isinstance(test.get(key), str):
            raise ValueError(f"{field}.{key}: expected a text, got {'nothing' if test.get(key) is None else type(test[key]).__name__}")
    return test["input"], test["output"]


def _tree(field: str, test: Any) -> ast.Module:
    if not isinstance(test, str):
        raise ValueError(f"{field}: expected an assert statement as text, got {type(test).__name__}")
    try:
        return ast.parse(test)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"{field}: not valid Python: {error}: {test[:60]!r}") from None


def _calls(field: str, trees: list[ast.Module], entry: str | None) -> list[str]:
    """The calls of test functions that the tests define and do not call themselves."""
    functions = [node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    top_level = [node for tree in trees for statement in tree.body if isinstance(statement, ast.Expr) for node in ast.walk(statement)]
    called = {node.func.id for node in top_level if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    calls = [f"{name}()" for name in functions if name.startswith("test") and name not in called]
    if "check" in functions and "check" not in called:
        if entry is None:
            raise ValueError(f"entry_point: expected the name of the function that `check` in {field} is called with, got nothing")
        calls.append(f"check({entry})")
    return calls


def _names(trees: list[ast.Module], entry: str | None) -> tuple[str, ...]:
    """What the tests use and neither define nor find among the built-ins: the program's. Thus it cannot replace `abs` in a test."""
    used: set[str] = set()
    own: set[str] = set(dir(builtins)) | {"__name__"}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.alias):
            own.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            own.add(node.name)
    return tuple(sorted((used - own) | ({entry} if entry else set())))


def difference(got: str, expected: str, tolerance: float | None = None) -> str | None:
    """Where two outputs differ, line by line without the spaces at the ends of lines and the empty lines at the end; None if nowhere.

    Args:
        got: the program's.
        expected: the test's.
        tolerance: numbers may differ by it, absolutely or relatively; words of a line are then compared one by one.
    """
    ours, theirs = _lines(got), _lines(expected)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        if one != other and (tolerance is None or not _near(one, other, tolerance)):
            return f"line {number} is {short(one)}, expected {short(other)}"
    if len(ours) != len(theirs):
        at = min(len(ours), len(theirs))
        what = f"line {at + 1}: expected {short(theirs[at])}, got no more" if at < len(theirs) else f"more follows: {short(ours[at])}"
        return f"printed {len(ours)} lines, expected {len(theirs)}; {what}"
    return None


def short(text: str) -> str:
    """The text in quotes, cut to 60 characters."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _near(one: str, other: str, tolerance: float) -> bool:
    ours, theirs = one.split(), other.split()
    return len(ours) == len(theirs) and all(a == b or _close(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))


def _close(one: str, other: str, tolerance: float) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False
