from __future__ import annotations

import re
from itertools import permutations

import pytest
from pydantic import ValidationError

from sharpen.errors import ProblemError
from sharpen.grading import grade
from sharpen.problems import ArithmeticSource, fingerprint, load_problems
from sharpen.problems.arithmetic import LEVELS, is_held_out
from sharpen.rewards.steps import equations


def prompts(**settings: object) -> list[str]:
    return [problem.prompt for problem in load_problems(ArithmeticSource.model_validate(settings))]


def mirrors(prompt: str) -> set[str]:
    """Every way to swap what a `*` or a `+` of the prompt joins that leaves its meaning; stories swap their first two numbers."""
    a, b, *rest = re.findall(r"\d+", prompt)
    if prompt.startswith("What is"):
        if "*" in prompt and len(rest) == 2:
            c, d = rest
            pairs = [(f"{a} * {b}", f"{b} * {a}"), (f"{c} * {d}", f"{d} * {c}")]
            return {f"What is {x} + {y}?" for left in pairs[0] for right in pairs[1] for x, y in permutations((left, right))}
        return {prompt, re.sub(r"(\d+) ([*+]) (\d+)", r"\3 \2 \1", prompt, count=1)}
    numbers = [int(n) for n in re.findall(r"\d+", prompt)]
    order = (1, 2) if prompt.startswith("Each of") else (0, 1)
    numbers[order[0]], numbers[order[1]] = numbers[order[1]], numbers[order[0]]
    filled = iter(numbers)
    return {prompt, re.sub(r"\d+", lambda _: str(next(filled)), prompt)}


def test_mirrors_are_what_they_should_be() -> None:
    assert mirrors("What is 3 * 7?") == {"What is 3 * 7?", "What is 7 * 3?"}
    assert mirrors("What is 3 * 7 + 2?") == {"What is 3 * 7 + 2?", "What is 7 * 3 + 2?"}
    assert "What is 5 * 4 + 3 * 2?" in mirrors("What is 2 * 3 + 4 * 5?")
    assert len(mirrors("What is 2 * 3 + 4 * 5?")) == 8


@pytest.mark.parametrize("level", LEVELS)
def test_no_held_out_problem_nor_its_mirror_is_in_training(level: int) -> None:
    train, held_out = set(prompts(levels=[level])), prompts(levels=[level], split="held_out")
    for prompt in held_out:
        assert not mirrors(prompt) & train
    share = len(held_out) / (len(held_out) + len(train))
    assert 0.30 < share < 0.37


@pytest.mark.parametrize("seed", range(5))
def test_the_split_holds_for_any_seed_count_and_operands(seed: int) -> None:
    train = set(prompts(levels=[1, 4, 6], seed=seed, count=150, maximum=30))
    wide = set(prompts(levels=[6], seed=seed, count=500, minimum=0, maximum=1000))
    held_out = prompts(levels=[1, 4, 6], split="held_out", seed=seed + 1, count=90)
    for prompt in held_out:
        assert not mirrors(prompt) & (train | wide)


def test_the_pairs_of_level_1_that_are_held_out() -> None:
    # Written out, so that a change of the hash, which would mix up the splits of old and new runs, is seen.
    pairs = {tuple(sorted(map(int, re.findall(r"\d+", prompt)))) for prompt in prompts(levels=[1], split="held_out")}
    assert pairs == {
        *((2, 6), (2, 7), (2, 12), (3, 5), (3, 7), (3, 8), (3, 9), (3, 11), (3, 12), (4, 7), (4, 12), (5, 6), (5, 8), (6, 12), (7, 10)),
        *((8, 8), (8, 10), (9, 11), (9, 12), (11, 11), (11, 12)),
    }
    assert all(is_held_out(1, pair) for pair in pairs)


def test_prompts_and_answers_are_right() -> None:
    for level in LEVELS:
        for problem in load_problems(ArithmeticSource(levels=[level], count=60, seed=3)):
            expression = re.fullmatch(r"What is ([\d *+-]+)\?", problem.prompt)
            if expression:
                assert eval(expression[1]) == int(problem.answer)
            assert problem.meta["level"] == level
            assert grade(problem, problem.meta["solution"]).outcome == "right"
            assert equations([problem.meta["solution"].split("\n")]) == [[1.0] * (1 + problem.meta["solution"].count("\n"))]
            assert int(problem.answer) >= 0


def test_the_stories_by_hand() -> None:
    assert [LEVELS[5].make(which, 3, 4, 5)[:2] for which in range(4)] == [
        ("Mia buys 3 boxes of 4 pens each. She already has 5 pens. How many pens does she have now?", 17),
        ("Ben has 3 marbles and Lea has 4 marbles. Together they give away 5. How many marbles do they have left?", 2),
        ("A hall has 3 rows of 4 chairs. 5 chairs are taken away. How many chairs are left?", 7),
        ("Each of 5 children has 3 red beads and 4 blue beads. How many beads do they have together?", 35),
    ]


def test_levels_are_mixed_evenly_and_problems_are_different() -> None:
    problems = load_problems(ArithmeticSource(levels=[1, 2, 4], count=100))
    assert [sum(p.meta["level"] == level for p in problems) for level in (1, 2, 4)] == [34, 33, 33]
    assert [p.meta["level"] for p in problems[:6]] == [1, 2, 4, 1, 2, 4]
    assert len({p.prompt for p in problems}) == len({p.id for p in problems}) == 100


def test_a_seed_repeats_and_another_differs() -> None:
    first, again, other = (load_problems(ArithmeticSource(levels=[2], count=50, seed=seed)) for seed in (1, 1, 2))
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)


def test_operands_keep_to_their_range() -> None:
    numbers = [int(n) for prompt in prompts(levels=[2], minimum=100, maximum=103) for n in re.findall(r"\d+", prompt)]
    assert (min(numbers), max(numbers)) == (100, 103)
    wide = [int(n) for prompt in prompts(levels=[6], count=200, maximum=10**9) for n in re.findall(r"\d+", prompt)]
    assert max(wide) > 9 * 10**8


def test_too_few_problems_are_told_with_their_number() -> None:
    total = len(prompts(levels=[1]))
    assert len(prompts(levels=[1], count=total)) == total == 81
    with pytest.raises(ProblemError, match="split 'train' of level 1 with operands 2 to 12 has 81 problems, and 82 are asked for"):
        prompts(levels=[1], count=82)
    with pytest.raises(ProblemError, match="level 6 with operands 2 to 100 has too many problems to list"):
        prompts(levels=[6], maximum=100)
    with pytest.raises(ProblemError, match="has 0 problems"):
        prompts(levels=[1], minimum=2, maximum=2, split="held_out")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"levels": [7]}, "expected different levels of 1 to 6, got [7]"),
        ({"levels": [1, 1]}, "expected different levels"),
        ({"levels": []}, "at least 1 item"),
        ({"minimum": 13}, "the operands of level 1 would go from 13 to 12"),
        ({"levels": [1, 2], "count": 1}, "2 levels need at least as many problems, got 1"),
        ({"split": "test"}, "'train' or 'held_out'"),
        ({"share": 0.5}, "Extra inputs"),
    ],
)
def test_wrong_settings(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ArithmeticSource.model_validate(settings)
    assert told in str(caught.value)
