"""Strategies side by side on the toy policy, and judges of steps and of reward models."""

from __future__ import annotations

import math

import pytest
from toy import LINE, PROMPT, STOP, A, B, ToyEngine, decode, lines, problems, reader, render, stepper

from sharpen.errors import RewardError
from sharpen.evaluation.pass_at_k import maj_at_k, pass_at_k
from sharpen.rewards.steps import equations
from sharpen.rollout.engine import Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.search.choose import weighted_vote
from sharpen.search.compare import MAJORITY, Plan, Tools, _of_samples, between, compare, sample_pool
from sharpen.search.judges import UNKNOWN, Asked, OfModel, Plain, Reader, Rollouts, of_steps, sigmoid
from sharpen.tracking.observer import Silent

SAMPLING = Sampling(max_new_tokens=12)


class Tokenizer:
    def decode(self, ids, skip_special_tokens: bool = False) -> str:
        return decode(ids)


def all_b(problem, prompt, completions) -> list[float]:
    return [float("a" not in decode(tokens)) for tokens in completions]


def tools(policy, *, scored: bool = True, oracle: bool = False) -> Tools:
    engine = ToyEngine(policy, [STOP])
    judge = Plain(all_b, "all b")

    def rollouts(oracle: bool = False) -> Rollouts:
        return Rollouts(engine, reader(), rollouts=1, sampling=SAMPLING, seed=0, oracle=oracle)

    return Tools(
        rollout=Rollout(engine=engine, tokenizer=Tokenizer(), render=render, seed=0),
        stepper=stepper(policy),
        reader=reader(),
        judge=(lambda: judge) if scored else rollouts,
        scorer=judge if scored else None,
        oracle=(lambda: rollouts(oracle=True)) if oracle else None,
    )


def test_strategies_at_equal_tokens() -> None:
    made = tools(lines(3, {A: 0.65, B: 0.35}), oracle=True)
    rows = compare(problems(6), made, Plan(budgets=[56, 140], width=4, beams=2), SAMPLING)
    assert [(row.strategy, row.budget) for row in rows[:8]] == [
        ("greedy", None),
        (MAJORITY, 56),
        ("best-of-N", 56),
        ("weighted vote", 56),
        ("Pass@N (oracle)", 56),
        ("beam search", 56),
        ("tree search", 56),
        ("tree search (oracle)", 56),
    ]
    by = {(row.strategy, row.budget): row for row in rows}
    assert (by["greedy", None].accuracy.value, by["greedy", None].tokens) == (0.0, 7.0)
    for (name, budget), row in by.items():
        if budget is not None:
            limit = {"tree search (oracle)": 4 + 12 + 16}.get(name, 4)
            assert budget <= row.tokens < budget + limit
            assert row.strategy == MAJORITY or MAJORITY in row.gains
    # a completion has 7 tokens, so 56 tokens are 8 samples; the scorer knows b from a, so best-of-N finds what there is
    assert by["best-of-N", 56].notes["n"] == 8
    assert by["best-of-N", 140].accuracy == by["Pass@N (oracle)", 140].accuracy
    assert by[MAJORITY, 140].accuracy.value < 0.5 < by["tree search", 140].accuracy.value
    gain = by["tree search", 140].gains["best-of-N"]
    assert gain.value == pytest.approx(by["tree search", 140].accuracy.value - by["best-of-N", 140].accuracy.value)
    assert by["tree search", 140].notes["rules"]["vote"] == by["tree search", 140].accuracy.value
    assert by["tree search (oracle)", 56].notes["judge"] == "oracle"
    assert not any("oracle" in row.notes.get("judge", "") for row in rows if "oracle" not in row.strategy)
    again = compare(problems(6), made, Plan(budgets=[56, 140], width=4, beams=2), SAMPLING)
    assert [(row.scores, row.spent) for row in again] == [(row.scores, row.spent) for row in rows]


def test_votes_and_pass_at_n_are_those_of_evaluations() -> None:
    made, some = tools(lines(2, {A: 0.5, B: 0.5}), scored=False), problems(3, "ab")
    pool = sample_pool(some, made, SAMPLING, 40, Silent(), seed=0)
    assert pool.means == [5.0] * 3
    assert [len(row) for row in pool.lengths] == [16] * 3  # twice the budget's worth
    rows = {row.strategy: row for row in _of_samples(pool, 40, 0, scored=False)}
    assert list(rows) == [MAJORITY, "best-of-N (log p)", "weighted vote (log p)", "Pass@N (oracle)"]
    own = list(zip(pool.answers, pool.correct, strict=True))
    assert rows[MAJORITY].scores == tuple(maj_at_k(answers, right, 8) for answers, right in own)
    assert rows["Pass@N (oracle)"].scores == tuple(pass_at_k(16, sum(right), 8) for _, right in own)
    # the toy's log-probabilities are all equal, and so are the weights
    assert rows["weighted vote (log p)"].scores == rows[MAJORITY].scores
    assert all(weight == pytest.approx(math.exp(-0.5)) for row in pool.weights for weight in row)


def test_between_two_numbers_of_samples() -> None:
    assert between(lambda n: float(n * n), 3) == 9.0
    assert between(lambda n: float(n * n), 3.25) == 0.75 * 9 + 0.25 * 16
    pool = sample_pool(problems(2), tools(lines(3, {A: 0.5, B: 0.5})), SAMPLING, 30, Silent(), seed=0)
    assert pool.sizes(30) == [30 / 7] * 2
    assert pool.sizes(3) == [1.0] * 2  # one completion at least, though it costs more
    assert {row.tokens for row in _of_samples(pool, 30, 0, scored=True)} == {30.0}
    assert {row.tokens for row in _of_samples(pool, 3, 0, scored=True)} == {7.0}
    row = next(row for row in _of_samples(pool, 30, 0, scored=True) if row.strategy == "weighted vote")
    assert row.scores[0] == pytest.approx(
        5 / 7 * weighted_vote(pool.answers[0], pool.correct[0], pool.weights[0], 4)
        + 2 / 7 * weighted_vote(pool.answers[0], pool.correct[0], pool.weights[0], 5)
    )


def test_completions_without_an_answer_are_chosen_last_and_nothing_is_right() -> None:
    made = tools(lambda text: {STOP: 0.5, A: 0.5} if not text else {A: 1.0})  # empty, or endless
    rows = compare(problems(2), made, Plan(budgets=[24]), SAMPLING)
    assert all(row.accuracy.value == 0.0 for row in rows)
    pool = sample_pool(problems(2), made, SAMPLING, 24, Silent(), seed=0)
    assert {reward for row in pool.rewards for reward in row} == {None}
    tree = next(row for row in rows if row.strategy == "tree search")
    assert tree.notes["without_answer"] == 2


def test_values_of_steps_are_the_lowest_of_those_judged() -> None:
    letters = {STOP: "", LINE: "\n", 20: "1+1=2", 21: "1+1=3", 22: "so", PROMPT: ""}

    def text(tokens) -> str:
        return "".join(letters[token] for token in tokens)

    value = of_steps(equations, text, Reader(text, [STOP]))
    problem = problems(1)[0]
    true, false, silent = (20, LINE), (20, LINE, 21, LINE), (22, LINE)
    assert value(problem, (PROMPT,), [true, false, silent, (), (STOP,), (*true, 22, STOP)]) == [1.0, 0.0, UNKNOWN, UNKNOWN, UNKNOWN, 1.0]

    def cheat(steps, answer):
        return [[1.0] * len(one) for one in steps]

    with pytest.raises(RewardError, match="does not know the ground truth"):
        of_steps(cheat, text, Reader(text, [STOP]))(problem, (PROMPT,), [true])


class Model:
    """A made-up reward model: logits by the number of b, probabilities by the place of a step's end."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def score(self, prompts, completions) -> list[float]:
        self.calls.append(len(completions))
        assert len(prompts) == len(completions)
        return [float(list(tokens).count(B)) for tokens in completions]

    def score_steps(self, prompts, completions, ends) -> list[list[float]]:
        self.calls.append(len(completions))
        return [[1 / (1 + end) for end in own] for own in ends]


def test_reward_models_read_a_wave_in_one_call() -> None:
    one, two = problems(2)
    asked = [Asked(one, (PROMPT,), ((B, LINE), (A, LINE, B, STOP)), 0), Asked(two, (PROMPT,), ((A, LINE),), 3)]
    model = Model()
    found = OfModel(model, "outcome", decode, reader(), name="made up")(asked)
    assert [list(judged.values) for judged in found] == [[pytest.approx(sigmoid(1.0), abs=1e-6)] * 2, [0.5]]
    assert model.calls == [3]
    found = OfModel(model, "process", decode, reader(), name="made up")(asked)
    # steps end at place 1, at 1 and 3, at 1: the lowest are 1/2, 1/4, 1/2
    assert [list(judged.values) for judged in found] == [[0.5, 0.25], [0.5]]
    assert (sigmoid(800.0), sigmoid(-800.0), sigmoid(0.0)) == (1.0, 0.0, 0.5)
