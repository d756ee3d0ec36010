"""Sampling and grading a set of problems."""

from __future__ import annotations

import sys

import pytest

from sharpen.evaluation.evaluate import evaluate, vote
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


def test_one_number_is_one_vote() -> None:
    assert {vote("18"), vote("18.0"), vote("$18"), vote("18 dollars")} == {"18"}
    assert vote("0.5") == vote("1/2") == "1/2"
    assert vote("x + 1") == vote("x+1") == "x+1"
    assert vote(r"\dfrac{x}{2}") == vote(r"\frac{x}{2}") == vote(r"$\frac{ x }{2}$")
    assert vote(r"\left(1, 2\right)") == vote("(1,2)")
    assert vote("New York") != vote("NewYork")
    assert vote("x = 1\nprint(x)", "code") == "x = 1\nprint(x)"
    assert vote(None) is None
