from __future__ import annotations

import asyncio
import functools
import logging
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from sharpen.errors import RewardError
from sharpen.records import Completion, Group, Problem
from sharpen.rewards import score as score_module
from sharpen.rewards.score import Scorer
from sharpen.rewards.settings import RewardFunctionSettings, RewardSettings


@dataclass(frozen=True)
class Verdict:
    outcome: str
    reason: str | None
    extracted: str | None


def grade(problem, text):
    """The last word is the answer; `?` as the ground truth cannot be judged."""
    answer = text.split()[-1] if text else None
    if problem.answer == "?":
        return Verdict("unscorable", "the ground truth '?' cannot be parsed", answer)
    return Verdict("right" if answer == problem.answer else "wrong", None, answer)


def group(number, texts, answer="8", problem_id=None, **meta):
    problem = Problem(id=problem_id or f"p{number}", prompt=f"question {number}", answer=answer, meta=meta)
    completions = tuple(
        Completion(tokens=tuple(range(len(text))), sampling_logprobs=(0.0,) * len(text), text=text, finish_reason=reason)
        for text, reason in ((text.removesuffix("…"), "length" if text.endswith("…") else "stop") for text in texts)
    )
    return Group(id=f"0/{number}/0", problem=problem, prompt_tokens=(1, 2), completions=completions)


@pytest.fixture
def scorer(monkeypatch):
    """A scorer of these functions, (callable or built-in name, weight, parameters) each, named f0, f1, …"""

    def make(*parts, fail_fast=False, grade=grade, steps=0):
        given, entries = {}, []
        for index, part in enumerate(parts):
            function, *rest = part if isinstance(part, tuple) else (part,)
            settings = dict(zip(("weight", "parameters"), rest, strict=False))
            address = function if isinstance(function, str) else f"own.py:f{index}"
            given[address] = function
            entries.append(RewardFunctionSettings(function=address, **settings))
        real = score_module.load_function

        def load(entry, base):
            return real(entry, base) if isinstance(given[entry.function], str) else given[entry.function]

        monkeypatch.setattr(score_module, "load_function", load)
        return Scorer(RewardSettings(functions=entries, fail_fast=fail_fast), grade=grade, steps=steps)

    return make


def listed(tensor):
    return [[None if math.isnan(value) else value for value in row] for row in tensor.tolist()]


TWO = [group(0, ["so 8", "so 9"]), group(1, ["8…", ""])]


def test_two_groups_of_two(scorer):
    scores = scorer("accuracy", ("finished", 0.5)).score(TWO)
    assert scores.total.dtype == torch.float64
    # accuracy 1 0 / 1 0, finished 1 1 / 0 1: total = accuracy + 0.5 · finished
    assert scores.parts["accuracy"].tolist() == [[1, 0], [1, 0]]
    assert scores.parts["finished"].tolist() == [[1, 1], [0, 1]]
    assert scores.total.tolist() == [[1.5, 0.5], [1.0, 0.5]]
    assert scores.correct.tolist() == [[True, False], [True, False]]
    assert scores.answers == (("8", "9"), ("8", None))
    assert scores.failures == ()


def test_parts_that_are_none_are_left_out_and_zero_is_a_reward(scorer):
    first, second = (lambda **_: [1, None]), (lambda **_: [0, 1])
    assert scorer((first, 1.0), (second, 0.5)).score(TWO[:1]).total.tolist() == [[1.0, 0.5]]
    scores = scorer((lambda **_: [None, 0.0]), (lambda **_: [None, None])).score(TWO[:1])
    assert listed(scores.total) == [[None, 0.0]]
    assert [(f.function, f.problem_id, f.index, f.reason) for f in scores.failures] == [
        ("f0", "p0", 0, "it returned None"),
        ("f1", "p0", 0, "it returned None"),
        ("f1", "p0", 1, "it returned None"),
    ]


def test_a_part_of_weight_0_is_recorded_and_makes_nothing_scorable(scorer):
    scores = scorer((lambda **_: [None, 1.0]), ("finished", 0.0)).score(TWO[:1])
    assert listed(scores.total) == [[None, 1.0]]
    assert scores.parts["finished"].tolist() == [[1, 1]]


def test_nan_and_infinity_never_reach_a_total(scorer, caplog):
    with caplog.at_level(logging.WARNING):
        scores = scorer((lambda **_: [math.nan, math.inf]), ("finished", 0.25)).score(TWO[1:])
    assert listed(scores.parts["f0"]) == [[None, None]]
    assert scores.total.tolist() == [[0.0, 0.25]]
    assert [f.reason for f in scores.failures] == [
        "it returned nan, which is not a finite number",
        "it returned inf, which is not a finite number",
    ]
    assert len(caplog.records) == 1 and "2 rewards could not be given" in caplog.text and "'p1', completion 0" in caplog.text


def test_an_answer_that_cannot_be_judged_is_unscorable_with_the_graders_reason(scorer):
    scores = scorer("accuracy").score([group(0, ["so 8", "so 9"], answer="?"), TWO[0]])
    assert listed(scores.total) == [[None, None], [1.0, 0.0]]
    assert scores.correct.tolist() == [[False, False], [True, False]]
    assert scores.answers[0] == ("8", "9")
    assert [f.reason for f in scores.failures] == ["the answer cannot be judged: the ground truth '?' cannot be parsed"] * 2


def test_a_grader_that_fails_is_unscorable_not_wrong(scorer):
    def lost(problem, text):
        if text == "so 9":
            raise OSError("worker lost")
        return grade(problem, text)

    scores = scorer("accuracy", grade=lost).score(TWO)
    assert listed(scores.total) == [[1.0, None], [1.0, 0.0]]
    assert "OSError: worker lost" in scores.failures[0].reason


def test_each_completion_is_graded_once(scorer):
    graded = []

    def counting(problem, text):
        graded.append((problem.id, text))
        return grade(problem, text)

    scorer("accuracy", ("accuracy", 0.5, {"require_stop": True}), grade=counting).score(TWO)
    assert graded == [("p0", "so 8"), ("p0", "so 9"), ("p1", "8"), ("p1", "")]


def test_one_function_twice_is_two_parts(scorer):
    scores = scorer("accuracy", ("accuracy", 0.5, {"require_stop": True})).score(TWO)
    assert list(scores.parts) == ["accuracy", "accuracy_2"]
    assert scores.total.tolist() == [[1.5, 0.0], [1.0, 0.0]]


THREE = [group(0, ["a", "b", "c"])]


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        ([1.0], "1\\."),
        ([1.0, 0.0], "2\\."),
        ([], "0\\."),
        (np.ones((3, 1)), r"an array of shape \(3, 1\)"),
        (torch.ones(3, 1), r"an array of shape \(3, 1\)"),
        (np.float64(1.0), r"an array of shape \(\)"),
        (1.0, "float 1.0"),
        (None, "NoneType None"),
        ("abc", "str 'abc'"),
        ({"a": 1, "b": 2, "c": 3}, "dict"),
    ],
)
def test_a_wrong_number_of_values_is_an_error(scorer, returned, got):
    with pytest.raises(RewardError, match=f"'f0': expected 3 values, one a completion; got {got}"):
        scorer(lambda **_: returned).score(THREE)


@pytest.mark.parametrize(("returned", "got"), [([[1.0], [0.0], [1.0]], r"list \[1.0\] at place 0"), ([1, "1", 0], "str '1' at place 1")])
def test_values_must_be_numbers(scorer, returned, got):
    with pytest.raises(RewardError, match=f"'f0': expected a number or None a completion; got {got}"):
        scorer(lambda **_: returned).score(THREE)


@pytest.mark.parametrize(
    "returned",
    [(1, 0.5, False), np.array([1.0, 0.5, 0.0]), torch.tensor([1.0, 0.5, 0.0]), [np.float32(1), torch.tensor(0.5), np.bool_(False)]],
)
def test_lists_tuples_and_arrays_of_numbers_are_taken(scorer, returned):
    assert scorer(lambda **_: returned).score(THREE).total.tolist() == [[1.0, 0.5, 0.0]]


def longer_than(prompts, completions, limit, **columns):
    return [float(len(text) > limit) for text in completions]


class Judge:
    def __call__(self, completions, answer):
        return [float(text.endswith(gold)) for text, gold in zip(completions, answer, strict=True)]


async def slowly(prompts, completions, **columns):
    await asyncio.sleep(0)
    return [float(len(text)) for text in completions]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda completions, **_: [len(text) for text in completions], [[4, 4], [1, 0]]),
        (lambda p, c, **_: [len(text) for text in c], [[4, 4], [1, 0]]),
        (lambda p, c: [len(text) for text in c], [[4, 4], [1, 0]]),
        (lambda finish_reason: [reason == "length" for reason in finish_reason], [[0, 0], [1, 0]]),
        (functools.partial(longer_than, limit=3), [[1, 1], [0, 0]]),
        (Judge(), [[1, 0], [1, 0]]),
        (slowly, [[4, 4], [1, 0]]),
    ],
)
def test_any_callable_is_a_reward_function(scorer, function, expected):
    assert scorer(function).score(TWO).total.tolist() == expected


def test_a_coroutine_function_works_inside_a_running_event_loop(scorer):
    async def notebook():
        return scorer(slowly).score(TWO).total.tolist()

    assert asyncio.run(notebook()) == [[4, 4], [1, 0]]


def test_parameters_and_columns_reach_the_function(scorer):
    seen = {}

    def look(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return [0.0] * len(prompts)

    groups = [group(0, ["so 8", "9…"], level=3), group(1, ["8", ""], subject="algebra")]
    scorer((look, 1.0, {"limit": 7})).score(groups)
    assert {seen.pop(name) is None for name in ("trainer_state", "log_extra", "log_metric")} == {False}
    assert seen == {
        "prompts": ["question 0", "question 0", "question 1", "question 1"],
        "completions": ["so 8", "9", "8", ""],
        "prompt_ids": [[1, 2]] * 4,
        "completion_ids": [[0, 1, 2, 3], [0], [0], []],
        "finish_reason": ["stop", "length", "stop", "stop"],
        "answer": ["8"] * 4,
        "problem_id": ["p0", "p0", "p1", "p1"],
        "verdict": ["right", "wrong", "right", "wrong"],
        "level": [3, 3, None, None],
        "subject": [None, None, "algebra", "algebra"],
        "limit": 7,
    }


def test_a_function_cannot_change_what_the_next_one_sees(scorer):
    def spoil(prompts, completions, **columns):
        completions[:] = [""] * len(completions)
        return [0.0] * len(prompts)

    assert scorer(spoil, lambda completions, **_: [len(text) for text in completions]).score(TWO).total.tolist() == [[4, 4], [1, 0]]


def raises_on_nine(prompts, completions, **columns):
    if any("9" in text for text in completions):
        raise KeyError("nine")
    return [1.0] * len(completions)


def test_a_function_that_raises_loses_only_the_completions_at_fault(scorer):
    scores = scorer(raises_on_nine).score(TWO)
    assert listed(scores.total) == [[1.0, None], [1.0, 1.0]]
    (failure,) = scores.failures
    assert (failure.function, failure.problem_id, failure.index) == ("f0", "p0", 1)
    assert "Traceback" in failure.reason and "raises_on_nine" in failure.reason and "KeyError: 'nine'" in failure.reason


def test_a_coroutine_that_raises_is_found_too(scorer):
    async def judge(completions, **columns):
        return raises_on_nine([], completions)

    assert listed(scorer(judge).score(TWO).total) == [[1.0, None], [1.0, 1.0]]


async def cancels_nine(prompts, completions, **columns):
    if any("9" in text for text in completions):
        raise asyncio.CancelledError("the judge hung up")
    return [1.0] * len(completions)


def test_a_coroutine_that_is_cancelled_is_a_function_that_raises(scorer):
    async def notebook():
        return scorer(cancels_nine).score(TWO)

    for scores in (scorer(cancels_nine).score(TWO), asyncio.run(notebook())):
        assert listed(scores.total) == [[1.0, None], [1.0, 1.0]]
        (failure,) = scores.failures
        assert "Traceback" in failure.reason and "CancelledError: the judge hung up" in failure.reason


def test_a_function_that_raises_on_batches_only_is_told_and_keeps_its_values(scorer, caplog):
    def alone(prompts, completions, **columns):
        (text,) = completions
        return [float(len(text))]

    scores = scorer(alone).score(TWO)
    assert scores.total.tolist() == [[4, 4], [1, 0]]
    assert "on none of them alone" in caplog.text and "too many values to unpack" in caplog.text


def test_a_column_that_is_not_there_is_named(scorer):
    scores = scorer(lambda completions, levle: [1.0] * len(completions), ("finished", 0.5)).score([group(0, ["8", "9"], level=3)])
    assert scores.total.tolist() == [[0.5, 0.5]]
    assert "missing a required argument: 'levle'" in scores.failures[0].reason
    assert "level" in scores.failures[0].reason.split("The columns are")[1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises_on_nine, "(?s)'f0' gave no reward for problem 'p0', completion 1: it raised.*KeyError"),
        (lambda **_: [1.0, math.nan, 1.0, 1.0], "'p0', completion 1: it returned nan"),
        (lambda **_: [1.0, 1.0, None, 1.0], "'p1', completion 0: it returned None"),
    ],
)
def test_fail_fast_stops_at_the_first_failure(scorer, function, message):
    with pytest.raises(RewardError, match=message):
        scorer(function, fail_fast=True).score(TWO)


def test_the_same_problem_in_two_groups_is_scored_twice_without_cross_talk(scorer):
    scores = scorer("accuracy").score([group(0, ["8", "9"], problem_id="p"), group(1, ["9", "8"], problem_id="p")])
    assert scores.total.tolist() == [[1, 0], [0, 1]]


def test_sizes(scorer):
    with pytest.raises(ValueError, match=r"sizes \[2, 3\]"):
        scorer("accuracy").score([*TWO, *THREE])
    nothing = scorer("accuracy").score([])
    assert nothing.total.shape == (0, 0) and nothing.answers == () and nothing.parts["accuracy"].shape == (0, 0)


def test_a_part_outside_its_steps_is_recorded_and_not_counted():
    entries = [{"function": "accuracy"}, {"function": "finished", "weight": 0.5, "from_step": 3, "until_step": 4}]
    scorer = Scorer(RewardSettings.model_validate({"functions": entries}), grade=grade)
    for step, totals in {
        1: [[1, 0], [1, 0]],
        2: [[1, 0], [1, 0]],
        3: [[1.5, 0.5], [1, 0.5]],
        4: [[1.5, 0.5], [1, 0.5]],
        5: [[1, 0], [1, 0]],
    }.items():
        scores = scorer.score(TWO, step=step)
        assert scores.total.tolist() == totals
        assert scores.parts["finished"].tolist() == [[1, 1], [0, 1]]


def test_a_part_that_does_not_count_yet_makes_nothing_scorable():
    entries = [{"function": "accuracy"}, {"function": "finished", "from_step": 3}]
    scorer = Scorer(RewardSettings.model_validate({"functions": entries}), grade=grade)
    unscorable = [group(0, ["so 8", "9"], answer="?")]
    assert listed(scorer.score(unscorable, step=2).total) == [[None, None]]
    assert scorer.score(unscorable, step=3).total.tolist() == [[1, 1]]


def test_the_trainers_state_and_what_a_function_writes_down(scorer):
    def lively(prompts, completions, trainer_state, log_extra, log_metric, **columns):
        log_extra("length", [len(text) for text in completions])
        log_metric("longest", max(len(text) for text in completions))
        return [trainer_state.global_step + trainer_state.max_steps] * len(prompts)

    scores = scorer(lively, steps=10).score(TWO, step=3)
    assert scores.total.tolist() == [[12, 12], [12, 12]]  # two steps are done, of ten
    assert scores.logged == {"length": ((4, 4), (1, 0))}
    assert scores.metrics == {"longest": (4.0,)}


def test_what_is_written_down_by_a_call_that_raises_never_was(scorer):
    def half(completions, log_extra, log_metric, **columns):
        log_extra("seen", completions)
        log_metric("calls", 1)
        return raises_on_nine([], completions)

    scores = scorer(half).score(TWO)
    assert scores.logged == {"seen": (("so 8", None), ("8", ""))}
    assert scores.metrics == {"calls": (1.0, 1.0, 1.0)}  # the three that worked alone


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda log_extra, log_metric: log_extra("a", [1, 2]), r"log_extra\('a'\): expected 1 values, one a completion; got 2"),
        (lambda log_extra, log_metric: log_metric("a", math.nan), r"log_metric\('a'\): expected a finite number, got nan"),
    ],
)
def test_what_cannot_be_written_down_is_told(scorer, write, message):
    def wrong(completions, log_extra, log_metric, **columns):
        write(log_extra, log_metric)
        return [0.0] * len(completions)

    with pytest.raises(RewardError, match=message):
        scorer(wrong, fail_fast=True).score(TWO)


@pytest.mark.parametrize(
    "function",
    [
        lambda completions, **_: [float("8" in completion[0]["content"]) for completion in completions],
        lambda prompts, completions, **_: [float(len(prompt[-1]["content"])) for prompt in prompts],
    ],
)
def test_a_function_for_lists_of_messages_is_told_so(scorer, function):
    scores = scorer(function).score([group(0, ["so 8", "so 9"])])
    assert listed(scores.total) == [[None, None]]
    assert "`completion` instead of `completion[0]['content']`" in scores.failures[0].reason


def test_nan_and_infinity_never_reach_an_advantage(scorer):
    from sharpen.ops.advantages import group_norm

    scores = scorer(lambda **_: [1.0, 0.0, math.nan, 1.0, math.inf, 0.0, 1.0, 0.0]).score(
        [group(0, ["a", "b", "c", "d"]), group(1, ["a", "b", "c", "d"])]
    )
    advantages = group_norm(scores.total, ddof=1, eps=1e-4)
    assert advantages.isfinite().all()
    assert advantages[0].tolist() == pytest.approx([0.5773, -1.1545, 0, 0.5773], abs=1e-4)
