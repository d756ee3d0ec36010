from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from sharpen.bundled import find_recipe
from sharpen.errors import ProblemError
from sharpen.grading import grade
from sharpen.grading.extract import extract
from sharpen.pipelines.evaluate import source_from_text
from sharpen.pipelines.parts import check_apart
from sharpen.problems.multi_step import LEVELS, MultiStepSource, draw, generate, is_held_out, solve
from sharpen.problems.source import load_problems
from sharpen.recipe import load_recipe
from sharpen.streams import generator


def test_a_worked_solution() -> None:
    item = solve("a*b+c*d-e", {"a": 7, "b": 3, "c": 4, "d": 5, "e": 11})
    assert item is not None
    assert item.question == "What is 7*3+4*5-11?"
    assert item.solution == "7*3=21\n4*5=20\n21+20=41\n41-11=30\nAnswer: 30"
    assert item.value == 30


def test_a_slip_is_carried_on_and_does_not_change_the_key() -> None:
    operands = {"a": 7, "b": 3, "c": 12}
    right, wrong = solve("a*b+c", operands), solve("a*b+c", operands, lambda value: value + 1)
    assert right is not None and wrong is not None
    assert wrong.solution == "7*3=22\n22+12=35\nAnswer: 35"
    assert wrong.key == right.key


def test_a_step_below_0_makes_no_problem() -> None:
    assert solve("a*b+c-d", {"a": 2, "b": 2, "c": 2, "d": 7}) is None
    assert solve("(a+b)*c-d", {"a": 2, "b": 2, "c": 2, "d": 8}) is not None


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_every_line_is_a_true_equation_and_the_last_is_the_answer(split: str) -> None:
    problems = generate(MultiStepSource(split=split, count=240))
    for problem in problems:
        *steps, last = problem.meta["solution"].split("\n")
        for step in steps:
            left, right = step.split("=")
            assert eval(left) == int(right)
        assert last == f"Answer: {problem.answer}"
        assert int(problem.answer) == eval(problem.prompt.removeprefix("What is ").removesuffix("?"))
        assert extract(problem.meta["solution"]) == (problem.answer, "after 'answer'")
        assert grade(problem, problem.meta["solution"]).outcome == "right"


def test_levels_take_turns_and_have_their_steps() -> None:
    problems = generate(MultiStepSource(count=12))
    assert [problem.meta["level"] for problem in problems] == [1, 2, 3, 4, 5, 6] * 2
    assert [problem.meta["solution"].count("=") for problem in problems] == [2, 3, 4, 3, 4, 3] * 2
    assert len({problem.id for problem in problems}) == 12
    assert [problem.meta["level"] for problem in generate(MultiStepSource(levels=[5, 2], count=3))] == [5, 2, 5]


def test_the_same_seed_gives_the_same_and_a_larger_count_begins_with_them() -> None:
    few = generate(MultiStepSource(count=30))
    assert generate(MultiStepSource(count=60))[:30] == few
    assert generate(MultiStepSource(count=30, seed=1)) != few


@pytest.mark.parametrize(
    ("shape", "one", "other"),
    [
        ("a*b+c", (7, 3, 12), (3, 7, 12)),
        ("a*b+c*d-e", (7, 3, 4, 5, 9), (5, 4, 3, 7, 9)),
        ("a*b*c+d*e", (2, 3, 4, 5, 6), (4, 2, 3, 6, 5)),
        ("(a+b)*(c+d)", (1, 2, 3, 4), (4, 3, 2, 1)),
    ],
)  # fmt: skip
def test_mirror_images_share_a_key(shape: str, one: tuple[int, ...], other: tuple[int, ...]) -> None:
    first, second = (solve(shape, dict(zip("abcde", operands, strict=False))) for operands in (one, other))
    assert first is not None and second is not None
    assert first.key == second.key
    assert first.question != second.question


def test_what_does_not_commute_has_a_key_of_its_own() -> None:
    items = [solve("a*b+c-d", dict(zip("abcd", operands, strict=True))) for operands in ((9, 8, 5, 7), (9, 8, 7, 5))]
    assert items[0] is not None and items[1] is not None
    assert items[0].key != items[1].key


@pytest.mark.parametrize("level", LEVELS)
def test_no_held_out_problem_is_in_training_whatever_the_seed(level: int) -> None:
    held_out = {item.key for _, item in islice(draw(level, "held_out", generator(0, "a")), 1500)}
    train = {item.key for seed in (1, 2) for _, item in islice(draw(level, "train", generator(seed, "b")), 1500)}
    assert held_out and train
    assert not held_out & train
    assert all(is_held_out(key) for key in held_out)


def test_about_a_third_is_held_out() -> None:
    for level in LEVELS:
        keys = {item.key for split in ("train", "held_out") for _, item in islice(draw(level, split, generator(3, split)), 1500)}
        assert 0.25 < len({key for key in keys if is_held_out(key)}) / len(keys) < 0.6


def test_more_than_there_are() -> None:
    with pytest.raises(ProblemError, match=r"the split 'held_out' of level 1 has \d+ problems, and 5000 are asked for") as caught:
        generate(MultiStepSource(levels=[1], split="held_out", count=5000))
    assert "Lower count" in str(caught.value)


@pytest.mark.parametrize(("levels", "count"), [([7], 10), ([1, 1], 10), ([], 10), ([1, 2], 1)])
def test_settings_that_make_no_sense(levels: list[int], count: int) -> None:
    with pytest.raises(ValueError):
        MultiStepSource(levels=levels, count=count)


def test_on_the_command_line() -> None:
    source = source_from_text("multi_step:1,3:10")
    assert source == MultiStepSource(levels=[1, 3], split="held_out", count=10)
    assert len(load_problems(source)) == 10
    assert source_from_text("multi_step:2") == MultiStepSource(levels=[2], split="held_out")
    with pytest.raises(ProblemError, match="multi_step:9"):
        source_from_text("multi_step:9")


def test_the_recipe_keeps_its_problems_apart() -> None:
    recipe = load_recipe(find_recipe(Path("tiny")), [])
    assert recipe.problems.held_out is not None
    check_apart(load_problems(recipe.problems.train), load_problems(recipe.problems.held_out))
