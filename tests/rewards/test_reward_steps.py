"""Steps of a completion and their rewards."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sharpen.errors import RewardError
from sharpen.records import Completion, Group, Problem
from sharpen.rewards.score import Scorer
from sharpen.rewards.settings import RewardFunctionSettings, RewardSettings, StepSettings
from sharpen.rewards.splitters import Step
from sharpen.rewards.steps import equations, judge
from tiny import IM_END, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def decode(ids: object) -> str:
    text: str = TOKENIZER.decode(list(ids), skip_special_tokens=False)  # type: ignore[call-overload]
    return text


def completion(text: str, *, stopped: bool = True) -> Completion:
    ids = tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"]) + ((IM_END,) if stopped else ())
    return Completion(tokens=ids, sampling_logprobs=(0.0,) * len(ids), text=text, finish_reason="stop" if stopped else "length")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 * 8 = 56", 1.0),
        ("7*8=54", 0.0),
        ("12 + 7 * 3 = 33", 1.0),  # precedence
        ("10 / 4 = 2.5", 1.0),
        ("1 / 0 = 0", 0.0),
        ("5 - 8 = -3", 1.0),
        ("so 2 + 2 = 4 and 3 + 3 = 7", 0.0),
        ("1,000 + 1 = 1,001", 1.0),
        ("the answer is 5", None),
        ("x = 5", None),
        ("2 + 3 = 1 + 4", None),
    ],
)
def test_equations(text: str, value: float | None) -> None:
    assert equations([[text]]) == [[value]]


def test_the_last_step_is_worth_the_reward_and_the_unjudged_are_left_out() -> None:
    steps = [[Step(3, "1+1=2"), Step(5, "hm"), Step(9, "1+1=3")], [Step(2, "0")]]
    assert judge("equations", equations, steps, [0.5, math.nan], {}) == [((3, 1.0), (9, 0.5)), ()]


def test_a_wrong_number_of_values_is_told() -> None:
    with pytest.raises(RewardError, match="Step function 'mine': expected 1 lists with one value a step"):
        judge("mine", lambda steps: [[1.0, 2.0]], [[Step(2, "0")]], [1.0], {})


def settings(function: str = "equations") -> RewardSettings:
    return RewardSettings(functions=[RewardFunctionSettings(function="accuracy")], steps=StepSettings(function=function))


def test_the_scorer_gives_steps_when_it_can_decode(tmp_path: Path) -> None:
    problem = Problem(id="p", prompt="?", answer="6")
    group = Group(id="0", problem=problem, prompt_tokens=(1,), completions=(completion("1+1=3\n4+2=6"), completion("6")))
    assert Scorer(settings()).score([group]).steps is None
    assert Scorer(settings(), decode=decode).score([group]).steps == ((((5, 0.0), (11, 1.0)), ((1, 1.0),)),)
    (tmp_path / "mine.py").write_text("def long(steps, answer):\n    return [[float(len(s) > 1) for s in one] for one in steps]\n")
    assert Scorer(settings("mine.py:long"), decode=decode, base=tmp_path).score([group]).steps == ((((5, 1.0), (11, 1.0)), ((1, 1.0),)),)


def test_an_unknown_step_function_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown step function 'equation'\. Did you mean 'equations'"):
        StepSettings(function="equation")
