"""Sampling and grading a set of problems."""

from __future__ import annotations

import sys

import pytest

from sharpen.evaluation.evaluate import evaluate
from sharpen.evaluation.pass_at_k import maj_at_k
from sharpen.evaluation.summary import ProblemResult
from sharpen.grading import Verdict
from sharpen.records import Completion, Group, Problem
from sharpen.rollout.engine import Sampling

evaluate_module = sys.modules["sharpen.evaluation.evaluate"]  # the package has a function of that name
PROBLEM = Problem(id="p", prompt="What is 9 + 9?", answer="18")
TEXTS = [("9 + 9 = 18", "stop"), ("It is $18.", "stop"), ("The answer is 17", "stop"), ("so 18", "length"), ("no idea", "stop")]


class Rollout:
    def sample(self, problems, group_size, sampling, *, stream, first=0, on_progress=None) -> list[Group]:
        assert (group_size, stream) == (5, "evaluation")
        made = tuple(Completion(tokens=(1,) * 4, sampling_logprobs=(0.0,) * 4, text=t, finish_reason=r) for t, r in TEXTS)
        return [Group(id="0/0/0", problem=p, prompt_tokens=(1,), completions=made) for p in problems]


def test_votes_and_verdicts() -> None:
    found = evaluate(Rollout(), [PROBLEM], 5, Sampling(max_new_tokens=4))
    result = found.results[0]
    assert result.correct == (True, True, False, False, False)  # the fourth was cut before it ended
    assert result.answers == ("18", "18", "17", None, None)
    assert result.finished == (True, True, True, False, True)
    assert found.pass_rates == {"p": 0.4}
    counted = evaluate(Rollout(), [PROBLEM], 5, Sampling(max_new_tokens=4), require_stop=False).results[0]
    assert counted.correct == (True, True, False, True, False)
    assert counted.answers == ("18", "18", "17", "18", None)


def test_code_runs_where_the_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Pool:
        def grade_all(self, items, *, sandbox):
            asked.append(sandbox)
            return [Verdict("wrong", "", None) for _ in items]

    monkeypatch.setattr(evaluate_module, "shared", Pool)
    evaluate(Rollout(), [PROBLEM], 5, Sampling(max_new_tokens=4), sandbox="none")
    assert asked == ["none"]


def test_answers_that_the_grader_calls_equal_are_one_vote_in_any_order() -> None:
    texts = [
        r"\boxed{\frac{1}{2}}",
        r"\boxed{0.5}",
        r"\boxed{1/2}",
        r"\boxed{\sqrt{2}}",
        r"\boxed{2^{1/2}}",
        r"\boxed{\sqrt 2}",
        r"\boxed{7}",
        "",
    ]
    gold = Problem(id="p", prompt="What is half of one?", answer="0.5")

    def made(order: list[str]) -> ProblemResult:
        class Written:
            def sample(self, problems, group_size, sampling, *, stream, first=0, on_progress=None) -> list[Group]:
                found = tuple(Completion(tokens=(1,), sampling_logprobs=(0.0,), text=t, finish_reason="stop") for t in order)
                return [Group(id="0/0/0", problem=p, prompt_tokens=(1,), completions=found) for p in problems]

        return evaluate(Written(), [gold], len(order), Sampling(max_new_tokens=4)).results[0]

    result = made(texts)
    assert result.correct == (True, True, True, False, False, False, False, False)
    assert result.answers == ("1/2", "1/2", "1/2", *[result.answers[3]] * 3, "7", None)
    assert result.answers[3] in (r"\sqrt2", r"\sqrt{2}", "2^{1/2}")
    # By spelling alone, seven votes of one each would tie. Three for a half tie with three for the root of two.
    assert maj_at_k(result.answers, result.correct, 8) == 0.5
    turned = made(texts[::-1])
    assert turned.answers == result.answers[::-1]
    assert [maj_at_k(turned.answers, turned.correct, k) for k in range(1, 9)] == [
        maj_at_k(result.answers, result.correct, k) for k in range(1, 9)
    ]
