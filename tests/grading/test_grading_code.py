"""Programs judged by their tests: honest ones, wrong ones, and those that try to be judged right without being it."""

from __future__ import annotations

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sandboxed import why_not

from sharpen.errors import ProblemError, SandboxError
from sharpen.grading import GradingPool, Verdict, grade, grade_code, state_gold
from sharpen.grading.code import find_program
from sharpen.grading.code_harness import decode, encode
from sharpen.grading.code_tests import difference, read_tests
from sharpen.grading.sandbox import working
from sharpen.problems import FileSource, check_golds, check_sandbox, fingerprint, load_problems
from sharpen.records import Problem
from sharpen.rewards.score import Scorer
from sharpen.rewards.settings import RewardSettings

needs_bubblewrap = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


def problem(**meta: Any) -> Problem:
    return Problem(id="p", prompt="?", answer="", kind="code", meta=meta)


def fenced(program: str) -> str:
    return f"Here it is:\n\n```python\n{program}\n```\n\nIt adds."


SUMS = problem(tests=[{"input": "2 3\n", "output": "5\n"}, {"input": "40 2\n", "output": "42\n"}])
ADD = problem(tests=["assert add(2, 3) == 5", "assert add(40, 2) == 42"])
CHECK = problem(entry_point="add", test="def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(40, 2) == 42\n")


def judged(task: Problem, program: str) -> tuple[str, str]:
    verdict = grade(task, fenced(program))
    return verdict.outcome, verdict.reason


# --- honest programs ------------------------------------------------------------------------------------------------------------------


@needs_bubblewrap
@pytest.mark.parametrize(
    ("task", "program", "outcome", "reason"),
    [
        (SUMS, "print(sum(map(int, input().split())))", "right", "all 2 tests passed"),
        (SUMS, "print(5)", "wrong", "test 2 of 2: line 1 is '5', expected '42'"),
        (SUMS, "print(int(input()))", "wrong", "test 1 of 2: ValueError: invalid literal for int() with base 10: '2 3'"),
        (SUMS, "print(5", "wrong", "test 1 of 2: SyntaxError: '(' was never closed"),
        (SUMS, "print(5)\nexit(1)", "wrong", "test 1 of 2: it ended with exit code 1"),
        (ADD, "def add(a, b): return a + b", "right", "all 2 tests passed"),
        (ADD, "def add(a, b): return 5", "wrong", "test 2 of 2 failed: add(40, 2) is 5, expected 42"),
        (ADD, "def add(a, b): return a + c", "wrong", "test 1 of 2 raised NameError: name 'c' is not defined"),
        (ADD, "def sub(a, b): return a + b", "wrong", "test 1 of 2 raised NameError: name 'add' is not defined"),
        (ADD, "def add(a, b) return", "wrong", "the program does not load: SyntaxError: expected ':' (program.py, line 1)"),
        (CHECK, "def add(a, b): return a + b", "right", "the test passed"),
        (CHECK, "def add(a, b): return a", "wrong", "test 1 of 1 failed: candidate(2, 3) is 2, expected 5"),
        (CHECK, "print('x'); input = 3\ndef add(a, b):\n    print('y')\n    return a + b", "right", "the test passed"),
    ],
)
def test_programs_and_their_verdicts(task: Problem, program: str, outcome: str, reason: str) -> None:
    assert judged(task, program) == (outcome, reason)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("tests", "program"),
    [
        (["import math", "assert math.isclose(root(2), 1.41421356, rel_tol=1e-6)"], "def root(x): return x ** 0.5"),
        (["assert f() == {1: (2, {3}), None: [b'x', 1j, True]}"], "def f(): return {1: (2, {3}), None: [b'x', 1j, True]}"),
        (["assert str(f()) == 'nan'", "assert f() != f()"], "def f(): return float('nan')"),
        (["assert count('abca') == {'a': 2, 'b': 1, 'c': 1}"], "from collections import Counter\ncount = Counter"),
        (["x = [3, 1]", "assert f(x) == [1, 3]", "assert x == [3, 1]"], "f = sorted"),
        (["assert f(*[1], b=2) == 3"], "def f(a, b): return a + b"),
        (["try:\n    f(-1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'no'"], "def f(x): raise ValueError('no')"),
        (["assert max_of([1, 2]) == max([1, 2])"], "def max_of(x): return max(x)\nmax = None"[:33]),
        (["def test_f():\n    assert f(10 ** 5000) == 10 ** 5000 + 1"], "def f(x): return x + 1"),
        (["for i in range(300):\n    assert f(i) == [i] * i"], "def f(i): return [i] * i"),
        (["assert f('ü\\ud800\\n') == 'ü\\ud800\\n'"], "def f(x): return x"),
        (["assert f(P(1)) == 1"], "def f(x): return x\nP = int"),
    ],
)
def test_values_go_there_and_back(tests: list[str], program: str) -> None:
    assert judged(problem(tests=tests), program) == ("right", "the test passed" if len(tests) == 1 else f"all {len(tests)} tests passed")


@needs_bubblewrap
def test_a_name_of_a_built_in_is_the_programs_only_where_it_is_the_entry_point() -> None:
    cheat = "def abs(x): return 0\ndef f(x): return 99"
    assert judged(problem(tests=["assert abs(f(1) - 1) < 1e-6"]), cheat)[0] == "wrong"
    assert judged(problem(tests=["assert sum(10, 15) == 25"], entry_point="sum"), "def sum(a, b): return a + b")[0] == "right"


@needs_bubblewrap
def test_what_tests_cannot_hand_over_is_no_fault_of_the_program() -> None:
    verdict = grade(problem(tests=["assert f(lambda x: x) == 1"]), fenced("def f(g): return 1"))
    assert (verdict.outcome, verdict.extracted) == ("unscorable", "def f(g): return 1\n")
    assert "function is not plain data" in verdict.reason
    assert grade(problem(tests=["while True: pass\nassert f()"], time_limit=1), fenced("def f(): return 1")).outcome == "unscorable"


@needs_bubblewrap
def test_limits_of_time_are_the_problems() -> None:
    slow = problem(tests=[{"input": "", "output": "1\n"}], time_limit=0.7)
    assert judged(slow, "import time; time.sleep(60)") == ("wrong", "test 1 of 1: it took too long")
    assert judged(problem(tests=["assert f() == 1"], time_limit=0.7), "def f():\n    while True: pass") == (
        "wrong",
        "calling f: it took too long",
    )
    assert judged(problem(tests=["assert f() == 1"], time_limit=0.7), "while True: pass") == (
        "wrong",
        "the program does not load: it took too long",
    )
    assert judged(ADD, "def add(a, b): return bytearray(10 ** 10)")[1] == "test 1 of 2 raised MemoryError: "
    assert judged(ADD, "def add(a, b): return 'x' * 10 ** 7") == ("wrong", "calling add: it printed too much")


# --- programs that want to be right without being it ----------------------------------------------------------------------------------

ALWAYS_EQUAL = (
    "class Yes(KIND):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    __hash__ = None\n"
)
FORGERIES = {
    "it ends before the tests": "import os\nos._exit(0)",
    "it ends before the tests, politely": "import sys\nsys.exit(0)",
    "it ends in a call": "def add(a, b):\n    import os\n    os._exit(0)",
    "it ends in a call, politely": "def add(a, b): raise SystemExit(0)",
    "a value that equals all": ALWAYS_EQUAL.replace("(KIND)", "") + "def add(a, b): return Yes()",
    "a number that equals all": ALWAYS_EQUAL.replace("KIND", "int") + "def add(a, b): return Yes(7)",
    "a text that equals all": ALWAYS_EQUAL.replace("KIND", "str") + "def add(a, b): return Yes('7')",
    "a list that equals all": ALWAYS_EQUAL.replace("KIND", "list") + "def add(a, b): return Yes([7])",
    "unittest.mock.ANY": "from unittest.mock import ANY\ndef add(a, b): return ANY",
    "other built-ins": (
        "import builtins, sys\nbuiltins.AssertionError = type('E', (BaseException,), {})\nbuiltins.int = lambda x: 5\nbuiltins.__debug__\n"
        "builtins.isinstance = lambda a, b: True\ndef add(a, b): return 7"
    ),
    "no assertions": "import sys\nsys.flags = None\nsys.settrace(lambda *a: None)\n__debug__\ndef add(a, b): return 7",
    "a verdict of its own": (
        "import os\nfor fd in range(64):\n    for mark in (b'V[\"right\", \"\"]\\n', b'[\"value\", null]\\n', b'+', b'PASSED\\n'):\n"
        "        try: os.write(fd, mark)\n        except OSError: pass\ndef add(a, b): return 7"
    ),
    "replies in advance": (
        "import os\nfor fd in range(64):\n    try: os.write(fd, b'[\"value\", true]\\n' * 9)\n"
        "    except OSError: pass\ndef add(a, b): return 7"
    ),
    "another encoder": (
        "import json, sys\njson.dumps = lambda *a, **k: '[\"value\", {\"object\": 1}]'\nm = sys.modules['__main__']\n"
        "m.encode = lambda value: {'bool': True}\ndef add(a, b): return 7"
    ),
    "no reply": "import json\njson.dumps = lambda *a, **k: 'null'\ndef add(a, b): return 7",
    "the frames above": (
        "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        for d in (f.f_locals, f.f_globals):\n"
        "            for v in list(d.values()):\n                if v in (5, 42) and v not in (a, b): return v\n"
        "        f = f.f_back\n    return 7"
    ),
    "what the collector knows": (
        "import gc\ndef add(a, b):\n    for o in gc.get_objects():\n        if 'assert add' in repr(o)[:9999]: return eval(str(o))\n"
        "    return 7"
    ),
    "descriptors and memory": (
        "import os\ndef add(a, b):\n    seen = b''\n    for fd in range(64):\n        try: seen += os.pread(fd, 10000, 0)\n"
        "        except OSError: pass\n    for name in ('/proc/self/mem', '/proc/1/mem', '/proc/1/fd/0', '/proc/1/cmdline'):\n"
        "        try: seen += open(name, 'rb').read(10000)\n        except OSError: pass\n    return 42 if b'42' in seen else 7"
    ),
    "a file left for the next call": "def add(a, b):\n    open('/tmp/calls', 'a').write('x')\n    return len(open('/tmp/calls').read())",
}


@needs_bubblewrap
@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("task", [ADD, CHECK], ids=["asserts", "check"])
def test_forgeries_are_wrong(task: Problem, name: str) -> None:
    outcome, reason = judged(task, FORGERIES[name])
    assert outcome == "wrong", reason


@needs_bubblewrap
@pytest.mark.parametrize(
    "program",
    [
        "import os\nos._exit(0)",
        "print('all tests passed')",
        "print('+5')",
        "import sys\nsys.stdout.write('5\\n42\\n')",
        "import gc\nprint([o for o in gc.get_objects() if isinstance(o, dict) and 'output' in o][0]['output'])",
        "import os\nprint(open('/tmp/seen').read() if os.path.exists('/tmp/seen') else 5)\nopen('/tmp/seen', 'w').write('42')",
        "import sys\nprint(sys.stdin.read().splitlines()[1])",
    ],
)
def test_forged_outputs_are_wrong(program: str) -> None:
    outcome, reason = judged(SUMS, program)
    assert outcome == "wrong", reason


# --- the program in a completion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx\n```", "x\n"),
        ("```\nx\n```", "x\n"),
        ("```Python3\nx\n```", "x\n"),
        ("```py\nx\n```\nor\n```python\ny\n```", "y\n"),
        ("```python\nx\n```\nIt prints\n```\n5\n```", "x\n"),
        ("```python\nx\n```\nRun\n```bash\npython x.py\n```", "x\n"),
        ("1. So:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
        ('```python\ns = """```"""\n```', 's = """```"""\n'),
        ("<think>```python\nx\n```</think>\n```python\ny\n```", "y\n"),
    ],
)
def test_the_program_is_the_last_block_of_python(text: str, program: str) -> None:
    assert find_program(text) == (program, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print(5)", "there is no block of Python code"),
        ("`print(5)` and ```print(5)```", "there is no block of Python code"),
        ("```bash\nls\n```", "there is no block of Python code"),
        ("```python\n```", "there is no block of Python code"),
        ("```python\nx\n```\nBetter:\n```python\ny", "the last code block is not closed"),
        ("<think>```python\nx\n```", "the thinking is not finished"),
    ],
)
def test_completions_without_a_program_are_wrong(text: str, why: str) -> None:
    assert grade_code(SUMS, text) == Verdict("wrong", f"no answer: {why}", None)


def test_a_program_that_is_too_long_is_not_run() -> None:
    assert grade_code(SUMS, fenced("x" * 200_000)).reason == "the program has 200,001 characters, more than 100,000"


# --- tests and outputs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "fault"),
    [
        ("5\n", "5", None, None),
        ("5  \n\n\n", "5\n", None, None),
        ("a\r\nb", "a\nb\n", None, None),
        (" 5", "5", None, "line 1 is ' 5', expected '5'"),
        ("5.0", "5", None, "line 1 is '5.0', expected '5'"),
        ("5.0", "5", 1e-6, None),
        ("x 3.1415926 y", "x 3.14159 y", 1e-5, None),
        ("x 3.15 y", "x 3.14159 y", 1e-5, "line 1 is 'x 3.15 y', expected 'x 3.14159 y'"),
        ("nan", "1", 1.0, "line 1 is 'nan', expected '1'"),
        ("", "5", None, "printed 0 lines, expected 1; line 1: expected '5', got no more"),
        ("5\n6", "5", None, "printed 2 lines, expected 1; more follows: '6'"),
        ("5", "", None, "printed 1 lines, expected 0; more follows: '5'"),
        ("", "", None, None),
    ],
)
def test_outputs_are_compared_line_by_line(got: str, expected: str, tolerance: float | None, fault: str | None) -> None:
    assert difference(got, expected, tolerance) == fault


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ({}, 'tests: expected a list of {"input": ..., "output": ...}, a list of assert statements or a text; got nothing'),
        ({"tests": []}, "tests: .* got an empty list"),
        ({"tests": 5}, "tests: .* got int"),
        ({"tests": [{"input": "1"}]}, r"tests\[0\].output: expected a text, got nothing"),
        ({"tests": [{"input": "1", "output": "1"}, {"input": 2, "output": "1"}]}, r"tests\[1\].input: expected a text, got int"),
        ({"tests": [{"input": "1", "output": "1"}, "assert f()"]}, r"tests\[1\]: expected .* as the first one, got str"),
        ({"tests": ["assert f(", "x"]}, r"tests\[0\]: not valid Python: '\(' was never closed"),
        ({"tests": ["assert f()", 5]}, r"tests\[1\]: expected an assert statement as text, got int"),
        ({"tests": ["f() == 5"]}, "tests: there is no assert statement, so any program would pass"),
        ({"tests": '[{"input": "", "output": "1"}]'}, "tests: there is no assert statement"),
        ({"test": "def check(candidate):\n    assert candidate()"}, "entry_point: expected the name of the function that `check` in test"),
        ({"tests": "assert f()", "entry_point": "f()"}, r"entry_point: expected the name of a function, got 'f\(\)'"),
        ({"tests": "assert f()", "time_limit": 0}, "time_limit: expected a positive number, got 0"),
        ({"tests": "assert f()", "tolerance": "a"}, "tolerance: expected a number, got 'a'"),
    ],
)
def test_tests_that_cannot_be_read(meta: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_tests(meta)
    verdict = grade_code(problem(**meta), fenced("x"))
    assert verdict.outcome == "unscorable"
    assert re.search(told, verdict.reason)


def test_what_tests_ask_of_the_program() -> None:
    helped = ["import math as m", "def near(a, b): return abs(a - b) < m.pi", "assert near(f(1), g(2)) and [x for x in (1,)]"]
    assert read_tests({"tests": helped}).names == ("f", "g")
    assert read_tests({"tests": "def test_f():\n    assert f()"}).statements == ("def test_f():\n    assert f()\ntest_f()",)
    assert read_tests(CHECK.meta).statements[0].endswith("\ncheck(add)")
    assert read_tests({"tests": "def check(c):\n    assert c()\ncheck(f)"}).statements[0].endswith("check(f)")


@pytest.mark.parametrize(
    "value", [None, True, 1, -(10**400), 1.5, float("inf"), "ü\n", b"\0x", 1 + 2j, [1, (2, {3}), frozenset({4})], {(1, 2): {"a": None}}, {}]
)
def test_plain_data_is_the_same_after_its_journey(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert (back, type(back)) == (value, type(value))
    with pytest.raises(TypeError, match="object is not plain data"):
        encode([value, object()])


# --- loading, golds, settings -----------------------------------------------------------------------------------------------------------


def write(path: Path, *rows: dict[str, Any]) -> FileSource:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return FileSource(path=str(path), kind="code")


@needs_bubblewrap
def test_code_problems_from_a_file(tmp_path: Path) -> None:
    rows = [
        {"question": "Add.", "tests": list(ADD.meta["tests"]), "solution": "def add(a, b): return a + b"},
        {"question": "?", "tests": "assert f()"},
    ]
    problems = load_problems(write(tmp_path / "code.jsonl", *rows))
    assert [(p.kind, p.answer) for p in problems] == [("code", "")] * 2
    assert state_gold(problems[0]) == "```python\ndef add(a, b): return a + b\n```"
    assert state_gold(problems[1]) is None
    told: list[str] = []
    check_sandbox(problems, "bubblewrap", told.append)
    check_golds(problems, grade)
    assert told == []
    mbpp = {"text": "Add.", "test_list": ADD.meta["tests"], "code": "def add(a, b): return a - b", "id": 7}
    source = write(tmp_path / "mbpp.jsonl", mbpp).model_copy(
        update={"prompt_field": "text", "tests_field": "test_list", "solution_field": "code", "id_field": "id"}
    )
    with pytest.raises(ProblemError, match=r"7: answer '': wrong: test 1 of 2 failed: add\(2, 3\) is -1, expected 5"):
        check_golds(load_problems(source), grade)


def test_malformed_tests_are_named_by_file_line_and_field(tmp_path: Path) -> None:
    good = {"question": "?", "tests": "assert f()"}
    source = write(tmp_path / "code.jsonl", good, {"question": "?", "tests": [{"input": 1, "output": "1"}]})
    with pytest.raises(ProblemError, match=r"code.jsonl:2: field 'tests\[0\].input': expected a text, got int"):
        load_problems(source)
    with pytest.raises(ProblemError, match=r"code.jsonl:1: there is no field 'cases'; the row has 'question', 'tests'"):
        load_problems(source.model_copy(update={"tests_field": "cases"}))
    listed = write(tmp_path / "mbpp.jsonl", {"question": "?", "test_list": ["f()"]}).model_copy(update={"tests_field": "test_list"})
    with pytest.raises(ProblemError, match=r"mbpp.jsonl:1: field 'test_list': there is no assert statement"):
        load_problems(listed)


def test_the_fingerprint_sees_tests() -> None:
    assert fingerprint([ADD]) != fingerprint([problem(tests=["assert add(2, 3) == 6"])])


def test_without_a_sandbox_only_where_the_recipe_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    working.cache_clear()
    with pytest.raises(SandboxError, match="bubblewrap, which is not installed"):
        check_sandbox([ADD], "bubblewrap", print)
    with pytest.raises(SandboxError, match="bubblewrap, which is not installed"):
        grade(ADD, fenced("def add(a, b): return a + b"))
    check_sandbox([Problem(id="m", prompt="?", answer="1")], "bubblewrap", print)
    told: list[str] = []
    check_sandbox([ADD], "none", told.append)
    assert "the code of completions runs on this machine as you" in told[0]
    assert grade(ADD, fenced("def add(a, b): return a + b"), sandbox="none").outcome == "right"
    assert grade(SUMS, fenced("print(5)"), sandbox="none").outcome == "wrong"
    settings = {"functions": [{"function": "accuracy"}]}
    assert RewardSettings.model_validate(settings).sandbox == "bubblewrap"
    scorer = Scorer(RewardSettings.model_validate(settings | {"sandbox": "none"}))
    assert scorer._graded([(ADD, fenced("def add(a, b): return a + b"))])[0].outcome == "right"
    working.cache_clear()


@needs_bubblewrap
def test_from_threads_and_with_pickled_problems() -> None:
    texts = [fenced(f"def add(a, b): return a + b + {n % 2}") for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda text: grade_code(pickle.loads(pickle.dumps(ADD)), text).outcome, texts))
    assert outcomes == ["right", "wrong"] * 4


@needs_bubblewrap
def test_a_pool_judges_programs_beside_other_answers() -> None:
    twice = problem(tests=[{"input": "3\n", "output": "6\n"}])
    right = "```python\nprint(2 * int(input()))\n```"
    plain = Problem(id="m", prompt="?", answer="6")
    with GradingPool(workers=2) as pool:
        verdicts = pool.grade_all([(twice, right), (plain, r"\boxed{6}"), (twice, right.replace("2 *", "3 *")), (plain, "7")])
    assert [verdict.outcome for verdict in verdicts] == ["right", "right", "wrong", "wrong"]
