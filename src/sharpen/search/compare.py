"""Strategies side by side at equal generated tokens: one completion, votes, best-of-N, beam search and tree search.

A budget is in generated tokens a problem. Strategies that sample whole completions get as many of each problem as its mean length allows,
n = budget / mean length and at least one, and are expectations over subsets of n of its N samples. Between two whole numbers they are the
mixture of both that costs the budget on average. Searches generate until the budget is used up. What a reward model reads is in the
seconds, and in no token.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sharpen.evaluation.intervals import Estimate, Measure, change, estimate
from sharpen.evaluation.pass_at_k import maj_at_k, pass_at_k
from sharpen.records import Problem
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.search.beam import BeamSearch
from sharpen.search.choose import best_of_n, elected, weighted_vote
from sharpen.search.judges import Asked, Judge, Reader, Tokens
from sharpen.search.steps import Stepper
from sharpen.search.tree import Found, TreeSearch
from sharpen.streams import derive
from sharpen.tracking.observer import Observer, Silent

Rule = Literal["vote", "visits", "best"]
"""How a search's answer is chosen among its finished leaves. `vote`: weights are value × share, for a search does not draw leaves as often
as the policy would; so it is the weighted vote of samples, corrected for what was drawn. `visits`: the leaf with the most. `best`: the one
of the highest value. Ties are expectations."""

RULES: tuple[Rule, ...] = ("vote", "visits", "best")
MAJORITY = "majority vote"
SPARE = 2
"""A problem's samples hold at least so many times the largest budget."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What the strategies are made of.

    Attributes:
        rollout: samples whole completions.
        stepper: samples steps.
        reader: reads answers and grades them.
        judge: makes the judge of a search, a new one for each.
        scorer: rewards whole completions; None: their mean log-probability a token does.
        oracle: makes a judge by the ground truth, for one more tree search that says so; None: no such row.
    """

    rollout: Rollout
    stepper: Stepper
    reader: Reader
    judge: Callable[[], Judge]
    scorer: Judge | None = None
    oracle: Callable[[], Judge] | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is compared.

    Attributes:
        budgets: generated tokens a problem, rising.
        width: k, steps that a search draws at once.
        beams: B of the beam search at most; fewer where the budget would not bring them to their ends.
        exploration: c of the tree search.
        seed: of everything random.
    """

    budgets: Sequence[int]
    width: int = 4
    beams: int = 4
    exploration: float = 1.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """A strategy at a budget.

    Attributes:
        strategy: its name; one that used the ground truth has `oracle` in it.
        budget: tokens a problem that it was given; None for one that has no choice.
        accuracy: with the 95 % interval over problems.
        gains: over other strategies at the same budget, paired by problem, by their names: over the majority vote, and of searches over
            best-of-N and the weighted vote.
        tokens: mean tokens a problem that were generated.
        seconds: that it took for all problems; of strategies that share samples, their share of the sampling.
        scores: of each problem, the chance that its answer is right.
        spent: of each problem, tokens.
        notes: anything else, by name.
    """

    strategy: str
    budget: int | None
    accuracy: Estimate
    gains: Mapping[str, Estimate]
    tokens: float
    seconds: float
    scores: tuple[float, ...]
    spent: tuple[float, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The samples of the problems, in the problems' order; each has its own number N."""

    answers: list[list[str | None]]
    correct: list[list[bool]]
    lengths: list[list[int]]
    rewards: list[list[float | None]]
    weights: list[list[float | None]]
    seconds: float
    seconds_scoring: float

    @property
    def means(self) -> list[float]:
        """The mean length of each problem's completions."""
        return [sum(row) / len(row) for row in self.lengths]

    def sizes(self, budget: int) -> list[float]:
        """How many samples of each problem a budget pays for, n."""
        return [max(1.0, min(budget / mean, float(len(row)))) for mean, row in zip(self.means, self.lengths, strict=True)]


def between(value: Callable[[int], float], n: float) -> float:
    """A function of whole numbers at n: the mixture of ⌊n⌋ and ⌈n⌉ whose mean is n."""
    low = math.floor(n)
    share = n - low
    return value(low) if share == 0 else (1 - share) * value(low) + share * value(low + 1)


def compare(problems: Sequence[Problem], tools: Tools, plan: Plan, sampling: Sampling, observer: Observer | None = None) -> list[Row]:
    """Run every strategy on the same problems.

    Args:
        problems: with distinct ids.
        tools: model, judges, grader.
        plan: budgets and settings of the searches.
        sampling: of whole completions.
        observer: who watches.

    Returns:
        Rows by budget, those without one first.
    """
    observer = observer or Silent()
    rows = [_greedy(problems, tools, sampling, plan.seed)]
    pool = sample_pool(problems, tools, sampling, max(plan.budgets), observer, seed=plan.seed)
    for budget in plan.budgets:
        sampled = _of_samples(pool, budget, plan.seed, scored=tools.scorer is not None)
        mean = sum(pool.means) / len(problems)
        found = list(_searches(problems, tools, plan, budget, mean, observer))
        rows += [sampled[0], *(_against(row, sampled[:1], plan.seed) for row in sampled[1:])]
        rows += [_against(row, sampled[:3], plan.seed) for row in found]
    return rows


def sample_pool(problems: Sequence[Problem], tools: Tools, sampling: Sampling, budget: int, observer: Observer, *, seed: int) -> Pool:
    """Sample, grade and reward completions of every problem until they hold `SPARE` times the budget's tokens, so that subsets differ."""
    began = time.monotonic()
    prompts = [tools.rollout.render(problem) for problem in problems]
    sampled: list[list[Sampled]] = [[] for _ in problems]
    short = [max(1, math.ceil(SPARE * budget / sampling.max_new_tokens))] * len(problems)
    while any(short):
        observer.phase("sampling", sum(short))
        seeds = [
            [derive(seed, "search_sample", problem.id, len(own) + i) for i in range(more)]
            for problem, own, more in zip(problems, sampled, short, strict=True)
        ]
        asked = [p for p, more in enumerate(short) if more]
        drawn = tools.rollout.engine.sample([prompts[p] for p in asked], [seeds[p] for p in asked], sampling, observer.advance)
        for p, group in zip(asked, drawn, strict=True):
            sampled[p] += group
        short = [max(0, math.ceil(SPARE * budget * len(own) / sum(len(one.tokens) for one in own)) - len(own)) for own in sampled]
    done = time.monotonic()
    graded = iter(tools.reader.graded([(problem, one.tokens) for problem, own in zip(problems, sampled, strict=True) for one in own]))
    read = [[next(graded) for _ in own] for own in sampled]
    rewards, weights = _rewards(problems, prompts, sampled, read, tools.scorer)
    return Pool(
        answers=[[answer for answer, _ in row] for row in read],
        correct=[[right for _, right in row] for row in read],
        lengths=[[len(one.tokens) for one in own] for own in sampled],
        rewards=rewards,
        weights=weights,
        seconds=done - began,
        seconds_scoring=time.monotonic() - done,
    )


def _rewards(
    problems: Sequence[Problem],
    prompts: Sequence[Tokens],
    sampled: Sequence[Sequence[Sampled]],
    read: Sequence[Sequence[tuple[str | None, bool]]],
    scorer: Judge | None,
) -> tuple[list[list[float | None]], list[list[float | None]]]:
    """The reward of each completion, and its weight in a vote; None where it has no answer, so that it is chosen only if none has one."""
    if scorer is None:
        given = [[math.fsum(one.logprobs) / len(one.tokens) for one in own] for own in sampled]
        scale = [[math.exp(value) for value in row] for row in given]
    else:
        asked = [
            Asked(problem, prompt, tuple(one.tokens for one in own), 0)
            for problem, prompt, own in zip(problems, prompts, sampled, strict=True)
        ]
        given = [list(one.values) for one in scorer(asked)]
        scale = given

    def known(rows: list[list[float]]) -> list[list[float | None]]:
        return [
            [value if answer is not None else None for value, (answer, _) in zip(row, answers, strict=True)]
            for row, answers in zip(rows, read, strict=True)
        ]

    return known(given), known(scale)


def _greedy(problems: Sequence[Problem], tools: Tools, sampling: Sampling, seed: int) -> Row:
    began = time.monotonic()
    one = Sampling(max_new_tokens=sampling.max_new_tokens, temperature=0.0)
    groups = tools.rollout.sample(problems, 1, one, stream="search_greedy")
    tokens = [group.completions[0].tokens for group in groups]
    graded = tools.reader.graded(list(zip(problems, tokens, strict=True)))
    return _row("greedy", None, [float(right) for _, right in graded], [len(row) for row in tokens], time.monotonic() - began, seed)


def _of_samples(pool: Pool, budget: int, seed: int, *, scored: bool) -> list[Row]:
    """The strategies on whole completions; the majority vote first."""
    sizes = pool.sizes(budget)
    spent = [n * mean for n, mean in zip(sizes, pool.means, strict=True)]
    share = sum(sizes) / sum(map(len, pool.lengths))
    sampling, scoring = share * pool.seconds, share * pool.seconds_scoring
    by = "" if scored else " (log p)"
    names = (MAJORITY, f"best-of-N{by}", f"weighted vote{by}", "Pass@N (oracle)")
    scores: dict[str, list[float]] = {name: [] for name in names}
    for p, n in enumerate(sizes):
        own = _ways(pool, p, derive(seed, "search_subsets", p))
        for name, way in zip(names, own, strict=True):
            scores[name].append(between(way, n))
    notes = {"n": sum(sizes) / len(sizes), "samples": sum(map(len, pool.lengths)) / len(sizes)}
    return [_row(name, budget, values, spent, sampling + scoring, seed, notes) for name, values in scores.items()]


def _ways(pool: Pool, p: int, seed: int) -> tuple[Callable[[int], float], ...]:
    """What n samples of a problem are worth: to the majority vote, best-of-N, the weighted vote, and an oracle."""
    answers, right, rewards, weights = pool.answers[p], pool.correct[p], pool.rewards[p], pool.weights[p]
    return (
        lambda n: maj_at_k(answers, right, n, seed=seed),
        lambda n: best_of_n(rewards, right, n),
        lambda n: weighted_vote(answers, right, weights, n, seed=seed),
        lambda n: pass_at_k(len(right), sum(right), n),
    )


def _searches(problems: Sequence[Problem], tools: Tools, plan: Plan, budget: int, mean: float, observer: Observer) -> Sequence[Row]:
    """Beam and tree search at a budget."""
    judge, render = tools.judge(), tools.rollout.render

    def tree(judge: Judge) -> TreeSearch:
        return TreeSearch(tools.stepper, judge, render, seed=plan.seed, width=plan.width, exploration=plan.exploration)

    lane = mean * (1 + judge.most_tokens / tools.stepper.max_new_tokens)  # what bringing one beam to its end costs, about
    beams = max(1, min(plan.beams, int(budget / (plan.width * lane))))
    runs: list[tuple[str, BeamSearch | TreeSearch, dict[str, Any]]] = [
        ("beam search", BeamSearch(tools.stepper, judge, render, seed=plan.seed, width=plan.width, beams=beams), {"beams": beams}),
        ("tree search", tree(tools.judge()), {}),
    ]
    if tools.oracle is not None:
        runs.append(("tree search (oracle)", tree(tools.oracle()), {}))
    rows = []
    for name, search, notes in runs:
        observer.phase(name, budget * len(problems), "tokens")
        began = time.monotonic()
        found = search.run(problems, budget, observer.advance)
        read = _read(found, tools.reader)
        seconds = time.monotonic() - began
        by_rule = {rule: [score(one, answers, rule) for one, answers in zip(found, read, strict=True)] for rule in RULES}
        notes = notes | {
            "judge": search.judge.name,
            "rules": {rule: sum(values) / len(values) for rule, values in by_rule.items()},
            "without_answer": sum(not any(answer for answer, _ in answers) for answers in read),
            "exhausted": sum(one.ended == "exhausted" for one in found),
            "leaves": sum(len(one.leaves) for one in found) / len(found),
            "nodes": sum(one.nodes for one in found) / len(found),
            "answers": {one.problem.id: chosen(one, answers) for one, answers in zip(found, read, strict=True)},
        }
        rows.append(_row(name, budget, by_rule["vote"], [one.tokens for one in found], seconds, plan.seed, notes))
    return rows


def _read(found: Sequence[Found], reader: Reader) -> list[list[tuple[str | None, bool]]]:
    graded = iter(reader.graded([(one.problem, leaf.tokens) for one in found for leaf in one.leaves]))
    return [[next(graded) for _ in one.leaves] for one in found]


def score(found: Found, answers: Sequence[tuple[str | None, bool]], rule: Rule = "vote") -> float:
    """The chance that the answer that the rule chooses is right; 0 without a finished leaf.

    Args:
        found: of one problem.
        answers: of its leaves, and whether they are right.
        rule: how the answer is chosen.
    """
    if not found.leaves:
        return 0.0
    right = [ok for _, ok in answers]
    if rule == "vote":
        return weighted_vote([answer for answer, _ in answers], right, [leaf.value * leaf.share for leaf in found.leaves])
    given = [float(leaf.visits) if rule == "visits" else leaf.value for leaf in found.leaves]
    ranked = [value if answer is not None else None for value, (answer, _) in zip(given, answers, strict=True)]
    return best_of_n(ranked, right, len(right))


def chosen(found: Found, answers: Sequence[tuple[str | None, bool]]) -> list[str]:
    """The answer by the weighted vote; several where they tie, none without one."""
    return elected([answer for answer, _ in answers], [leaf.value * leaf.share for leaf in found.leaves])


def _row(
    name: str,
    budget: int | None,
    scores: Sequence[float],
    spent: Sequence[float],
    seconds: float,
    seed: int,
    notes: Mapping[str, Any] | None = None,
) -> Row:
    return Row(
        strategy=name,
        budget=budget,
        accuracy=estimate(Measure(scores), seed=seed),
        gains={},
        tokens=sum(spent) / len(spent),
        seconds=seconds,
        scores=tuple(scores),
        spent=tuple(spent),
        notes=notes or {},
    )


def _against(row: Row, others: Sequence[Row], seed: int) -> Row:
    """The row with its gains over these."""
    gains = {other.strategy: change(Measure(other.scores), Measure(row.scores), seed=seed) for other in others}
    return replace(row, gains=gains)
