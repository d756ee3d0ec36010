from __future__ import annotations

import sys

import pytest

from sharpen.errors import MissingPackageError, ProblemError
from sharpen.grading import grade
from sharpen.problems import GymSource, check_golds, fingerprint, load_problems

SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def test_problems_of_a_generator_hold_what_its_scorer_needs() -> None:
    pytest.importorskip("reasoning_gym")
    source = GymSource(generator="chain_sum", parameters=SMALL, count=5, seed=7)
    problems = load_problems(source)
    assert [p.id for p in problems] == [f"chain_sum/7/{i}" for i in range(5)]
    for problem in problems:
        assert (problem.kind, problem.meta["generator"], problem.meta["parameters"]) == ("reasoning_gym", "chain_sum", SMALL)
        assert eval(problem.meta["entry"]["metadata"]["expression"]) == int(problem.answer)
        assert grade(problem, f"<answer>{problem.answer}</answer>").outcome == "right"
        assert grade(problem, f"<answer>{int(problem.answer) + 1}</answer>").outcome == "wrong"
    assert fingerprint(problems) == fingerprint(load_problems(source))
    assert fingerprint(problems) != fingerprint(load_problems(source.model_copy(update={"seed": 8})))


@pytest.mark.parametrize(
    "generator", ["countdown", "maze", "sudoku", "spell_backward", "zebra_puzzles", "word_ladder", "rubiks_cube", "graph_color"]
)
def test_golds_of_generators_are_right_by_their_scorers(generator: str) -> None:
    pytest.importorskip("reasoning_gym")
    check_golds(load_problems(GymSource(generator=generator, count=2, seed=1)), grade)


@pytest.mark.parametrize(
    ("generator", "parameters", "told"),
    [
        ("chain_sums", {}, ["reasoning-gym has no generator 'chain_sums'. Did you mean 'chain_sum'?", "Use one of: ab, "]),
        (
            "chain_sum",
            {"min_term": 2},
            ["no parameter 'min_term'. Did you mean 'min_terms'?", "It takes: allow_negation, max_digits, max_terms"],
        ),
        ("chain_sum", {"seed": 2}, ["no parameter 'seed'. Use count and seed of the source."]),
        ("chain_sum", {"min_terms": 0}, ["the generator 'chain_sum' with parameters {'min_terms': 0}", "must be positive"]),
        ("chain_sum", {"min_terms": "two"}, ["the generator 'chain_sum' with parameters {'min_terms': 'two'}: TypeError"]),
    ],
)
def test_what_is_wrong_with_a_generator_is_told(generator: str, parameters: dict[str, object], told: list[str]) -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ProblemError) as caught:
        load_problems(GymSource(generator=generator, parameters=parameters, count=1))
    for part in told:
        assert part in str(caught.value)


def test_reasoning_gym_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingPackageError, match=r"The generator|the generator 'chain_sum' needs .*\n.*sharpen\[reasoning-gym\]"):
        load_problems(GymSource(generator="chain_sum", count=1))
