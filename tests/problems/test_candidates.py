"""Candidates, the mistakes in them, and what features see of them."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from sharpen import streams
from sharpen.errors import ProblemError
from sharpen.grading import grade
from sharpen.problems import candidate_data, worked
from sharpen.problems.candidate_features import FEATURES, equations_that_hold, features, read
from sharpen.problems.candidates import TRUE, build, candidates
from sharpen.problems.corruptions import CORRUPTIONS
from sharpen.problems.word_problems import STORIES, generate
from sharpen.records import Problem

QUESTION = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips in total?"
SOLUTION = """Natalia sold 48/2 = <<48/2=24>>24 clips in May.
Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.
#### 72"""
NATALIA = Problem(id="natalia", prompt=QUESTION, answer="72", meta={"solution": SOLUTION})

JANET_QUESTION = (
    "A hen lays 16 eggs per day. Janet eats 3 and bakes with 4. She sells the rest for $2 each. How much does she make in 5 days?"
)
JANET_SOLUTION = """She has 16 - 3 - 4 = <<16-3-4=9>>9 eggs a day to sell.
Those bring in 9 * 2 = $<<9*2=18>>18 every day.
That makes 18 x 5 = $<<18*5=90>>90.
#### 90"""
JANET = Problem(id="janet", prompt=JANET_QUESTION, answer="90", meta={"solution": JANET_SOLUTION})


def parsed(text: str) -> worked.Worked:
    found = worked.parse(text)
    assert found is not None
    return found


def corrupted(kind: str, solution: str, question: str, seed: int) -> worked.Worked | None:
    return CORRUPTIONS[kind](parsed(solution), sorted(read(question).stated), streams.generator(seed, kind))


# Worked solutions.


@pytest.mark.parametrize("text", [SOLUTION, JANET_SOLUTION, "First words.\n1/4*200 = <<1/4*200=50>>50 bars.\nThen words.\n#### 1,050"])
def test_a_solution_is_read_and_written_the_same(text: str) -> None:
    assert parsed(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "3 + 4 = <<3+4=7>>7",  # no answer
        "3 + 4 = <<3+4=7>>7\n#### seven",
        "<<3+4=7>>7 and <<7*2=14>>14\n#### 14",  # two equations on a line
        "<<x+4=7>>7\n#### 7",
        "<<3/0=7>>7\n#### 7",
        "<<3+4>>7\n#### 7",
        "<<3+(4=7>>7\n#### 7",
    ],
)
def test_what_is_no_worked_solution_is_none(text: str) -> None:
    assert worked.parse(text) is None
    assert equations_that_hold(text) == 0.0
    assert features(QUESTION, text) == [0.0] * len(FEATURES)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("48/2", "24"),
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("10-3-4", "3"),
        ("12/3/2", "2"),
        ("-3+5", "2"),
        (".05*200", "10"),
        ("1/4", "1/4"),
    ],
)
def test_expressions_are_exact(expression: str, value: str) -> None:
    pieces = worked.pieces(expression)
    assert pieces is not None
    assert worked.evaluate(pieces) == Fraction(value)


@pytest.mark.parametrize(
    ("equation", "holds"),
    [
        ("48/2=24", True),
        ("48/2=25", False),
        ("10/3=3.33", True),
        ("10/3=3.34", False),
        ("10/3=3", False),
        ("10/3=3.3", False),
        ("3/2=1.50", True),
    ],
)
def test_an_equation_holds_exactly_or_to_two_decimals(equation: str, holds: bool) -> None:
    assert parsed(f"<<{equation}>>\n#### 1").steps[0].holds is holds


def test_numbers_are_written_as_solutions_write_them() -> None:
    shown = [worked.show(Fraction(text)) for text in ("24", "1/2", "10/3", "-7/4", "1200")]
    assert shown == ["24", "0.50", "3.33", "-1.75", "1200"]
    assert worked.show(Fraction(1200), like="3,500") == "1,200"


# The mistakes, carried through.


def seeds_of(kind: str) -> list[worked.Worked]:
    found = [corrupted(kind, JANET_SOLUTION, JANET_QUESTION, seed) for seed in range(60)]
    made = [one for one in found if one is not None]
    assert len(made) > 20
    return made


def test_a_slip_makes_one_equation_false_and_is_carried_through() -> None:
    for made in seeds_of("slipped result"):
        assert [step.holds for step in made.steps].count(False) == 1
        assert worked.number(made.answer) == made.steps[-1].value
        assert [step.expression[1] for step in made.steps] == ["-", "*", "*"]
        assert made.steps[1].operands[0] == made.steps[0].value
        assert made.steps[2].operands[0] == made.steps[1].value


def test_a_wrong_operand_leaves_every_equation_true() -> None:
    unknown = 0
    stated = set(read(JANET_QUESTION).stated)
    for made in seeds_of("wrong operand"):
        assert all(step.holds for step in made.steps)
        assert worked.number(made.answer) == made.steps[-1].value
        results = {step.value for step in made.steps}
        unknown += any(value not in stated | results for step in made.steps for value in step.operands)
    assert 10 < unknown < 50  # some are copied wrong, and some are other numbers of the question


def test_a_wrong_operation_changes_one_sign_in_the_equation_and_in_the_words() -> None:
    true = parsed(JANET_SOLUTION)
    for made in seeds_of("wrong operation"):
        assert all(step.holds for step in made.steps)
        changed = [
            (a, b)
            for old, new in zip(true.steps, made.steps, strict=True)
            for a, b in zip(old.expression, new.expression, strict=True)
            if not worked.is_number(a) and a != b
        ]
        assert len(changed) == 1
        for step in made.steps:  # what the text before says is what is computed
            assert step.before.rstrip(" =$").replace(" ", "").replace("x", "*").endswith("".join(step.expression))


def test_a_dropped_step_shortens_the_solution_by_a_line() -> None:
    answers = set()
    for made in seeds_of("dropped step"):
        assert len(made.lines) == 2
        assert all(step.holds for step in made.steps)
        answers.add(made.answer)
    # First line left out: 16 * 2 = 32, 32 * 5 = 160; second: 9 eggs, 9 * 5 = 45; third: 9 * 2 = 18.
    assert answers == {"160", "45", "18"}


def test_a_scaled_answer_differs_from_the_last_result_alone() -> None:
    for made in seeds_of("scaled answer"):
        assert made.lines == parsed(JANET_SOLUTION).lines
        assert worked.number(made.answer) != 90


def test_text_around_an_equation_follows() -> None:
    """The first result read as 10 instead of 9: everything after says so."""
    wanted = """She has 16 - 3 - 4 = <<16-3-4=10>>10 eggs a day to sell.
Those bring in 10 * 2 = $<<10*2=20>>20 every day.
That makes 20 x 5 = $<<20*5=100>>100.
#### 100"""
    assert wanted in {made.text for made in seeds_of("slipped result")}


# Six candidates.


def test_six_candidates_with_six_answers_of_which_one_is_right() -> None:
    for problem in (NATALIA, JANET, *generate(60, seed=1)):
        made = candidates(problem, seed=7)
        assert not isinstance(made, str)
        assert len({worked.number(parsed(text).answer) for text in made.candidates}) == 6
        verdicts = [grade(problem, text).outcome for text in made.candidates]
        assert sorted(verdicts) == ["right", *["wrong"] * 5]
        assert made.origins[verdicts.index("right")] == TRUE
        assert made.candidates[verdicts.index("right")] == problem.meta["solution"]


def test_the_place_of_the_truth_tells_nothing() -> None:
    built = build(generate(600, seed=3), seed=0)
    places = Counter(question.origins.index(TRUE) for question in built.questions)
    assert len(built.questions) == 600
    assert all(places[place] == pytest.approx(100, abs=4 * 9.1) for place in range(6))  # deviation √(600 · 1/6 · 5/6) = 9.1


def test_every_kind_of_mistake_is_there() -> None:
    origins = Counter(origin for question in build(generate(100, seed=3), seed=0).questions for origin in question.origins)
    assert set(origins) == {TRUE, *CORRUPTIONS}
    assert all(origins[kind] > 50 for kind in CORRUPTIONS)


def test_a_question_keeps_its_candidates_whatever_stands_beside_it() -> None:
    assert build([NATALIA, JANET], seed=5).questions[1] == build([JANET], seed=5).questions[0]
    assert build([JANET], seed=5).questions != build([JANET], seed=6).questions


def test_what_takes_no_candidates_is_counted_by_reason() -> None:
    solutions = {
        "no equation": "Only words.\n#### 5",
        "an answer that is not the last result": "<<2+3=5>>5\n#### 6",
        "a solution that cannot be read": "<<2+x=5>>5\n#### 5",
    }
    problems = [Problem(id=str(i), prompt="2 and 3?", answer="5", meta={"solution": text}) for i, text in enumerate(solutions.values())]
    built = build([*problems, JANET, NATALIA], seed=0, limit=1)
    assert built.dropped == dict.fromkeys(sorted(solutions), 1)
    assert [question.problem.id for question in built.questions] == ["janet"]


# What features see.


def feature(name: str, question: str, text: str) -> float:
    return features(question, text)[FEATURES.index(name)]


def test_features_are_of_the_texts_alone() -> None:
    made = candidates(JANET, seed=1)
    other = candidates(dataclasses.replace(JANET, answer="12345"), seed=1)
    assert not isinstance(made, str) and not isinstance(other, str)
    assert [features(JANET_QUESTION, text) for text in made.candidates] == [features(JANET_QUESTION, text) for text in other.candidates]
    assert all(len(features(JANET_QUESTION, text)) == len(FEATURES) for text in made.candidates)


def test_features_by_hand() -> None:
    """One false equation of three, and 7 from nowhere in the place of 5."""
    text = JANET_SOLUTION.replace("18 x 5 = $<<18*5=90>>90", "18 x 7 = $<<18*7=90>>90")
    assert feature("equations that hold", JANET_QUESTION, text) == pytest.approx(2 / 3)
    assert feature("all equations hold", JANET_QUESTION, text) == 0.0
    assert feature("answer is the last result", JANET_QUESTION, text) == 1.0
    # Operands 16, 3, 4, 9, 2, 18, 7; a day brings in 24 and 7, so that all have an origin, but 5 of the question is not used.
    assert feature("operands of known origin", JANET_QUESTION, text) == 1.0
    assert feature("numbers of the question used", JANET_QUESTION, text) == pytest.approx(4 / 5)
    assert feature("operands of known origin", JANET_QUESTION, text.replace("7", "23")) == pytest.approx(6 / 7)
    assert feature("steps", JANET_QUESTION, text) == 3.0
    assert feature("all results used later", JANET_QUESTION, text) == 1.0


def test_numbers_in_words_are_read() -> None:
    reading = read("Three friends share 1/4 of 1,200 apples; a dozen are left after two weeks at 20%.")
    assert {Fraction(n) for n in ("3", "1200", "12", "2", "20")} <= set(reading.stated)
    assert {Fraction(n) for n in ("1/4", "3/4", "1/5", "4/5", "7", "100")} <= reading.implied
    assert read(JANET_QUESTION).money == {Fraction(2)}


# Where questions come from.


def test_generated_problems_are_different_and_true() -> None:
    problems = generate(300, seed=9)
    assert len({problem.prompt for problem in problems}) == len({problem.id for problem in problems}) == 300
    for problem in problems:
        solution = parsed(problem.meta["solution"])
        assert all(step.holds for step in solution.steps)
        assert 2 <= len(solution.steps) <= 4
        assert solution.answer == problem.answer
        assert grade(problem, problem.meta["solution"]).outcome == "right"
    assert generate(50, seed=9) == problems[:50]
    assert generate(50, seed=10) != problems[:50]
    assert len({problem.prompt.split()[1] for problem in problems}) >= len(STORIES) - 2


def test_gsm8k_is_found_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = json.dumps({"question": QUESTION, "answer": SOLUTION}) + "\n"
    for split in ("train", "test"):
        (tmp_path / "gsm8k").mkdir(exist_ok=True)
        (tmp_path / "gsm8k" / f"{split}.jsonl").write_text(row)
    found = candidate_data.load_worked(tmp_path, offline=True, seed=0, generated=1)
    assert (found.name, found.train[0].id, found.held_out[0].id) == ("gsm8k", "gsm8k/train/0", "gsm8k/test/0")
    assert found.train[0].meta["solution"] == SOLUTION
    assert candidate_data.load_worked(tmp_path / "gsm8k", offline=True, seed=0, generated=1) == found
    monkeypatch.setenv("SHARPEN_DATA", str(tmp_path))
    assert candidate_data.load_worked(None, offline=True, seed=0, generated=1) == found


def test_a_folder_without_gsm8k_is_an_error_only_where_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProblemError, match=r"neither gsm8k/train\.jsonl"):
        candidate_data.load_worked(tmp_path, offline=True, seed=0, generated=1)
    with pytest.raises(ProblemError, match="no such folder"):
        candidate_data.load_worked(tmp_path / "none", offline=True, seed=0, generated=1)
    monkeypatch.setenv("SHARPEN_DATA", str(tmp_path))
    found = candidate_data.load_worked(None, offline=True, seed=0, generated=3)
    assert (found.name, len(found.train), len(found.held_out)) == ("generated", 3, candidate_data.GENERATED_HELD_OUT)


def test_gsm8k_solutions_take_candidates(data_dir: Path) -> None:
    problems = candidate_data.load_worked(data_dir, offline=True, seed=0, generated=1).train[:200]
    built = build(problems, seed=0)
    assert len(built.questions) > 180
    for question in built.questions:
        verdicts = [grade(question.problem, text).outcome for text in question.candidates]
        assert [origin == TRUE for origin in question.origins] == [verdict == "right" for verdict in verdicts]
