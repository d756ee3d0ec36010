from __future__ import annotations

import json
import logging
import multiprocessing
import signal
import threading
import time
from pathlib import Path

import pytest

from sharpen.grading import Verdict, gold_fault, grade_math, grade_numeric, library
from sharpen.grading import math as room

# gold | what is in the box | equal?
EQUAL = [
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
    (r"1-\frac{1}{\mathrm{e}}", r"1+\frac{1}{\mathrm{e}}", False),
    (r"1-\frac{1}{\mathrm{e}}", r"1-\frac1e", True),
    (r"1:2:3:\ldots", r"1:4:9:\ldots", False),
    (r"1:2:3:\ldots", r"1 : 2 : 3 : \dots", True),
    ("3x+4y+14=0", "3*x-1*y+13=0", False),
    ("-34x-45y+20z-100=0", "34x+45y-20z+100=0", True),
    ("1331 and 1728", "1728", False),
    ("1331 and 1728", "1728, 1331", True),
    ("1331 and 1728", r"1331 \text{ and } 1728", True),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \frac{\pi}{2})", True),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(\frac{\pi}{2}, 3)", False),
    (r"\dfrac{9}{7}", r"\frac97", True),
    (r"\frac{1}{2}", r"\frac12", True),
    (r"\frac{1}{2}", r"\frac1{2}", True),
    (r"\frac{1}{2}", "0.5", True),
    (r"\frac{1}{3}", "0.333333", False),
    (r"\sqrt{2}", "1.414214", False),
    ("7425000", "7,425,000", True),
    (r"28\%", "28 percent", True),
    (r"28\%", "28 %", True),
    (r"28\%", "28 pct", True),
    (r"28\%", "0.28", True),
    (r"28\%", "28", False),
    ("28", r"28\%", False),
    (r"\{1,2,3\}", r"\{3,2,1\}", True),
    (r"\{1,2,3\}", r"\{1,2\}", False),
    (r"\{\frac12, \sqrt2, 3, 4, 5, 6\}", r"\{6, 5, 4, 3, \sqrt{2}, 0.5\}", True),
    ("(2,1)", "(1,2)", False),
    ("(1,2)", "(2,1)", False),
    ("(1,2)", "(1,2)", True),
    ("[1,2)", "(1,2)", False),
    (r"(-\infty,2)", r"(-\infty, 2]", False),
    (r"x \in [-2,7]", "[-2,7]", True),
    ("x=5", "5", True),
    ("5", "x=5", True),
    ("5", "5x", False),
    ("p^2-3q", "-3q+p^2", True),
    ("xy", "yx", True),
    (r"\sqrt{y-100}", r"-(-\sqrt{y-100})", True),  # real at none of the points that are tried
    (r"\sqrt{y-100}", r"\sqrt{y-101}", False),
    (r"\sqrt{y-100}", r"-\sqrt{y-100}", False),
    ("7", "2x + 3 = 7", False),
    ("12", "a + b = 12", True),
    ("0", "5x - 7y + 4 = 0", False),
    (r"135^\circ", r"\frac{3\pi}{4}", True),
    (r"0.1\pi", r"\frac{\pi}{10}", True),
    ("0", r"\cos\frac{\pi}{2}", True),
    ("5", r"x=5\text{ cm}", True),
    ("x=5", "6", False),
    ("x=1", "y=1", False),
    ("28", r"x = 28\%", False),
    ("(28,1)", r"(28\%,1)", False),
    ("3", "x=5, y=3", False),
    ("3", "x > 5, y = 3", False),
    ("$1331$ and $1728$", "1728 and 1331", True),
    ("200000", r"2 \times 10^{5}", True),
    ("0.00012", r"1.2 \cdot 10^{-4}", True),
    ("17", r"\sqrt{289}", True),
    ("1024", "2^{10}", True),
    # a calculation is no answer where a number is asked for
    ("2", "1+1", False),
    ("56", "7 * 8", False),
    ("56", r"7 \times 8", False),
    ("56", r"\frac{100 + 12}{2}", False),
    ("56", "7 * 8 = 56", True),
    ("56", "7 * 8 = 54 + 2", False),
    ("-5", r"x = -5", True),
    (r"6-5i", "6 - 5i", True),
    (r"11\sqrt2", r"11\sqrt{2}", True),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}", True),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}", False),
    (r"\text{Evelyn}", "Evelyn", True),
    (r"\text{Evelyn}", "nyleve", False),
    ("Evelyn", "nyleve", False),
    (r"\text{(C)}", "C", True),
    (r"\text{(C)}", "D", False),
    ("infinity", r"\infty", True),
    ("18", "18 dollars", True),
    (r"10\text{ inches}", "10", True),
    (r"5 \text{ million}", "5", False),
    ("120", r"120^\circ", True),
    (r"2\mathrm{e}", "2", False),
]


@pytest.mark.parametrize("answer", ["6=5", "0=5", "3=5", "x=6=5", "x=5=6", "1000!=5"])
def test_a_false_equation_is_wrong(answer: str) -> None:
    assert grade_math("5", rf"\boxed{{{answer}}}").outcome == grade_numeric("5", rf"\boxed{{{answer}}}").outcome == "wrong"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *[("5", "2+3=5"), ("5", "x=2+3=5"), ("5", "5=5"), ("5", "10/2=5"), (r"50\%", r"0.5=50\%"), ("0", "0=0"), ("180", r"\pi=180^\circ")],
        *[("0.67", "2/3=0.67"), ("3.14", r"\pi=3.14")],  # rounded to the digits that are written
    ],
)
def test_a_true_equation_says_its_right_side(gold: str, answer: str) -> None:
    assert grade_math(gold, rf"\boxed{{{answer}}}").outcome == "right"


@pytest.mark.parametrize(("gold", "answer", "equal"), EQUAL)
def test_strict_equality(gold: str, answer: str, equal: bool) -> None:
    assert grade_math(gold, rf"\boxed{{{answer}}}").outcome == ("right" if equal else "wrong")


@pytest.mark.parametrize(
    ("gold", "text", "verdict", "answer"),
    [
        ("-3", "the answer is -3", "right", "-3"),
        ("-3", "the answer is 3", "wrong", "3"),
        ("28\\%", r"\boxed{28 pct}", "right", "28 pct"),
        ("5", r"答案是 \boxed{5}", "right", "5"),
        ("5", "答案：５", "right", "5"),
        ("42", r"\boxed{41} or \boxed{42} or \boxed{43}", "wrong", None),
        ("42", r"I first thought \boxed{41} but \boxed{42}", "right", "42"),
        ("43", r"<think>\boxed{43}</think> \boxed{42}", "wrong", "42"),
        ("1331 and 1728", r"\boxed{1331} and \boxed{1728}", "right", "1331, 1728"),
        ("42", r"\boxed{41}, \boxed{42}, \boxed{43}", "wrong", "41, 42, 43"),
        ("3", "the answer is 3 or 5", "wrong", "3 or 5"),
        ("56", "The answer is 7 * 8.", "wrong", "7 * 8"),
        ("56", "The answer is 7 * 8 = 56.", "right", "7 * 8 = 56"),
        ("42", "", "wrong", None),
        ("42", r"\boxed{}", "wrong", None),
        ("42", r"\boxed{\frac{}", "wrong", None),
        ("42", r"\boxed{" + "4" * 1001 + "}", "wrong", "4" * 1001),
    ],
)
def test_texts(gold: str, text: str, verdict: str, answer: str | None) -> None:
    grade = grade_math(gold, text)
    assert (grade.outcome, grade.extracted) == (verdict, answer)
    assert grade.reason


@pytest.mark.parametrize("gold", ["", "  ", "$$", r"\frac{", "hello ???"])
def test_a_gold_that_cannot_be_read_is_unscorable(gold: str) -> None:
    assert grade_math(gold, rf"\boxed{{{gold}}}").outcome == "unscorable"
    assert gold_fault(gold) is not None


def test_a_reason_says_how_the_answer_was_found_and_why_it_is_wrong() -> None:
    assert grade_math("42", r"\boxed{41}") == Verdict("wrong", "the last box: another number", "41")
    assert grade_math("42", "is it 42?") == Verdict("right", "the last number: the ground truth itself", "42")


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"28\%", "28", True),
        ("28", "0.28", True),
        ("28", "2800", True),
        (r"\frac13", "0.333", True),
        (r"\frac13", "0.33", False),
        (r"\sqrt{2}", "1.4142", True),
        (r"(\sqrt{2}, 1)", "(1.4142, 1)", True),
        (r"(\sqrt{2}, 1)", "(1, 1.4142)", False),
        ("42", "43", False),
        ("56", "7 * 8", True),
    ],
)
def test_paper_mode_is_tolerant(gold: str, answer: str, equal: bool) -> None:
    assert grade_math(gold, rf"\boxed{{{answer}}}", mode="paper").outcome == ("right" if equal else "wrong")


def _endless(*_: object) -> None:
    while True:
        pass


def test_a_ground_truth_that_takes_too_long_is_unscorable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "TIME_LIMIT", 0.1)
    monkeypatch.setattr(room, "read", _endless)
    grade = grade_math("x + 987654", r"\boxed{x}")
    assert (grade.outcome, grade.reason) == ("unscorable", "the ground truth 'x + 987654' takes longer than 0.1 s to parse")
    room.gold_fault.cache_clear()


def test_a_comparison_that_takes_too_long_is_wrong_and_the_next_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    room.compare.cache_clear()
    start = time.perf_counter()
    with monkeypatch.context() as patched:
        patched.setattr(room, "TIME_LIMIT", 0.5)
        patched.setattr(room, "equal", _endless)
        grade = grade_math(r"\sqrt{2}", r"\boxed{\sqrt{3}}")
    assert (grade.outcome, grade.reason) == ("wrong", "the last box: comparing takes longer than 0.5 s")
    assert time.perf_counter() - start < 3.0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert grade_math(r"\sqrt{2}", r"\boxed{\frac{2}{\sqrt{2}}}").outcome == "right"
    room.compare.cache_clear()


@pytest.mark.parametrize(
    "answer",
    [
        r"\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}",
        "(((9!)!)!)",
        "9^{9^{9^9}}",
        r"\sqrt[10^{9}]{2}",
        r"\cos(10^{10^{10}})",
        r"\binom{10^{9}}{10^{8}}",
        r"\begin{pmatrix} 9^{9^{9^9}} \\ 1 \end{pmatrix}",
    ],
)
@pytest.mark.parametrize("gold", [r"\sqrt{2}", r"\frac{\pi}{2}", "x^2 + 1", "(1, 2)"])
def test_an_endless_computation_is_wrong_at_once(gold: str, answer: str) -> None:
    start = time.perf_counter()
    assert grade_math(gold, rf"\boxed{{{answer}}}").outcome == "wrong"
    assert time.perf_counter() - start < 1.0


SOME = [row for row in EQUAL if "x" not in row[0]][::3]


def _verdicts(queue: multiprocessing.Queue[list[str]] | None = None) -> list[str]:
    verdicts = [grade_math(gold, rf"\boxed{{{answer}}}").outcome for gold, answer, _ in SOME]
    if queue is not None:
        queue.put(verdicts)
    return verdicts


def test_a_thread_and_a_process_give_the_same_verdicts(caplog: pytest.LogCaptureFixture) -> None:
    expected = ["right" if equal else "wrong" for _, _, equal in SOME]
    room.compare.cache_clear()
    library.parse.cache_clear()
    found: list[list[str]] = []
    with caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=lambda: found.append(_verdicts()))
        thread.start()
        thread.join()
    queue: multiprocessing.Queue[list[str]] = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=_verdicts, args=(queue,))
    process.start()
    found.append(queue.get(timeout=60))
    process.join()
    assert found == [expected, expected]
    assert caplog.records == []


def _golds(path: Path) -> list[str]:
    answers = [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]
    return [answer.rpartition("####")[2].strip() for answer in answers]


@pytest.mark.parametrize(
    "name", ["gsm8k/test.jsonl", "math500.jsonl", "aime24.jsonl", "amc23.jsonl", "svamp.jsonl", "mgsm_zh.jsonl", "cmath.jsonl"]
)
def test_every_gold_is_right_by_itself_and_wrong_by_another(data_dir: Path, name: str) -> None:
    golds = _golds(data_dir / name)
    for gold in golds:
        assert grade_math(gold, rf"The answer: \boxed{{{gold}}}").outcome == "right", gold
        assert grade_math(gold, r"\boxed{-987654.5}").outcome == "wrong", gold


def test_gsm8k_solutions_are_right_as_they_stand(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "gsm8k/test.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 1319
    for row in rows:
        gold = row["answer"].rpartition("####")[2].strip()
        assert grade_math(gold, row["answer"]).outcome == "right"
        assert grade_math(gold, f"<think>{row['answer']}</think> <answer>{gold}</answer>").outcome == "right"


def test_math500_solutions_end_in_their_answers(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "math500.jsonl").read_text(encoding="utf-8").splitlines()]
    wrong = [row["id"] for row in rows if grade_math(row["answer"], row["solution"]).outcome != "right"]
    assert wrong == []
