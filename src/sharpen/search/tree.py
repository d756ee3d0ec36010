"""Monte Carlo tree search over reasoning steps.

A node is a prompt and the steps so far. Each round goes down from the root by

    a* = argmax_a  Q(s, a) + c · P(s, a) · √(Σ_b N(s, b)) / (1 + N(s, a))

the PUCT rule of AlphaGo Zero and AlphaZero (Silver et al. 2017, arXiv:1712.01815) with a constant c (`exploration`, 1 by default). Q is the
mean value of the nodes valued at and below a child, N their number. Steps are not enumerable, so a node's children are samples from the
policy, and P is the share of the samples that fell on a child, as in Sampled MuZero (Hubert et al. 2021, arXiv:2104.06303): equal steps are
one child that was drawn more often. Values are of steps of a language model, as in TS-LLM (Feng et al. 2023, arXiv:2309.17179) and
ReST-MCTS* (Zhang et al. 2024, arXiv:2406.03816).

At an open node without children k steps are drawn. Every new child is valued at once, and each value is backed up: N + 1 and W + value at
the child and at every node above it. A node that was visited k · (e + 1)² times after e drawings is drawn from once more (progressive
widening, Coulom 2007), so that a bad first drawing can be mended. A round that ends in a finished node backs its value up again, and costs
no tokens.

When nothing has finished, and no more tokens are left than one completion may take, exploring ends: c is 0 and one step is drawn at a time,
so that there is an answer at the end.

One node a problem is expanded at a time, many problems side by side: the batch comes from the problems, so there is no virtual loss, and a
problem's tree does not depend on which others are searched with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharpen.errors import RecipeError
from sharpen.records import Problem
from sharpen.search.judges import Asked, Judge, Tokens
from sharpen.search.steps import State, Step, Stepper
from sharpen.streams import derive

IDLE = 500
"""Rounds in a row that add no node, after which a tree is exhausted."""


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A finished completion.

    Attributes:
        tokens: the stop token included.
        value: what the judge gave it; of a rollout, the value of the node that it went on from.
        share: of the policy's samples, as far as the search knows: Π P along its path. The rollouts of a node that finished divide its own.
        visits: of its node; 0 for a rollout.
    """

    tokens: Tokens
    value: float
    share: float
    visits: int = 0


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found for a problem.

    Attributes:
        problem: the problem.
        leaves: the finished completions, in the order in which they were found.
        tokens: generated, those of the values included.
        nodes: steps kept, equal ones once.
        ended: `budget`, or `exhausted` where nothing new was found any more.
    """

    problem: Problem
    leaves: tuple[Leaf, ...]
    tokens: int
    nodes: int
    ended: str = "budget"


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """A completion so far.

    Attributes:
        parent: None for the root.
        tokens: the completion's, all steps so far.
        state: whether it may go on.
        value: the judge's; 0 where the limit has cut it.
        drawn: how often its step was sampled from its parent.
        visits: N, the values backed up through it.
        total: W, their sum.
        samples: steps drawn from it.
        drawings: how often.
        children: by their step's tokens, in the order in which they were first drawn.
    """

    parent: Node | None = None
    tokens: Tokens = ()
    state: State = "open"
    value: float = 0.0
    drawn: int = 1
    visits: int = 0
    total: float = 0.0
    samples: int = 0
    drawings: int = 0
    children: dict[Tokens, Node] = field(default_factory=dict)

    def backup(self, value: float) -> None:
        """Add a value here and at every node above."""
        node: Node | None = self
        while node is not None:
            node.visits += 1
            node.total += value
            node = node.parent

    @property
    def path_share(self) -> float:
        """Π P of the steps that led here."""
        share, node = 1.0, self
        while node.parent is not None:
            share *= node.drawn / node.parent.samples
            node = node.parent
        return share

    def score(self, exploration: float) -> float:
        """Q + U of this child, by the rule of the module."""
        parent = self.parent
        assert parent is not None
        tried = sum(child.visits for child in parent.children.values())
        mean = self.total / self.visits if self.visits else self.value
        return mean + exploration * self.drawn / parent.samples * math.sqrt(tried) / (1 + self.visits)

    def best(self, exploration: float) -> Node:
        """The child with the highest score, those that the limit has cut last; of equal ones, the one drawn first."""
        return max(self.children.values(), key=lambda child: (child.state != "cut" or exploration > 0, child.score(exploration)))

    def add(self, steps: Iterable[Step]) -> list[Node]:
        """Put drawn steps below this node; the new children alone come back, for equal steps are merged."""
        fresh = []
        for step in steps:
            self.samples += 1
            if (child := self.children.get(step.tokens)) is not None:
                child.drawn += 1
                continue
            child = Node(parent=self, tokens=(*self.tokens, *step.tokens), state=step.state)
            self.children[step.tokens] = child
            fresh.append(child)
        self.drawings += 1
        return fresh


def leaf_of(node: Node) -> Leaf:
    """A finished node as a leaf."""
    return Leaf(tokens=node.tokens, value=node.value, share=node.path_share, visits=node.visits)


class Rollout(NamedTuple):
    """A node, and the completions that its value was taken from and that finished."""

    node: Node
    finished: tuple[Tokens, ...]

    def leaves(self) -> list[Leaf]:
        """Them as leaves."""
        share = self.node.path_share / max(1, len(self.finished))
        return [Leaf(tokens=tokens, value=self.node.value, share=share) for tokens in self.finished]


class Purse:
    """The generated tokens of a problem's search, which overdraw a budget by less than the most that one draw can cost.

    Args:
        budget: in tokens.
        unit: the most that one draw can cost, its value included.
    """

    def __init__(self, budget: int, unit: int) -> None:
        self.budget, self.unit, self.spent = budget, unit, 0

    def draws(self, wanted: int) -> int:
        """How many of the draws wanted may be made; 0 when the budget is used up."""
        return max(0, min(wanted, -(-(self.budget - self.spent) // self.unit)))


class Tree:
    """One problem's search.

    Args:
        problem: the problem.
        prompt: its tokens.
        purse: the budget.
        width: k, steps drawn at once.
        exploration: c.
        reserve: tokens kept for finishing one completion.
    """

    def __init__(self, problem: Problem, prompt: Tokens, purse: Purse, *, width: int, exploration: float, reserve: int) -> None:
        self.problem, self.prompt, self.purse = problem, prompt, purse
        self.width, self.exploration, self.reserve = width, exploration, reserve
        self.root, self.nodes, self.turn, self.finished = Node(), 0, 0, False
        self.rollouts: list[Rollout] = []
        self._idle = 0

    def select(self) -> Node | None:
        """The next node to draw steps from; None when the budget is used up or the tree exhausted."""
        while self.purse.draws(1) and not self.exhausted:
            node, exploration = self.root, 0.0 if self.hurried else self.exploration
            while node.state == "open" and node.children and not self._widens(node):
                node = node.best(exploration)
            if node.state == "open":
                return node
            node.backup(node.value)
            self._idle += 1
        return None

    def _widens(self, node: Node) -> bool:
        """Whether a node with children is drawn from once more."""
        return not self.hurried and node.visits >= self.width * (node.drawings + 1) ** 2

    @property
    def hurried(self) -> bool:
        """Whether what is left is kept for finishing one completion."""
        return not self.finished and self.purse.budget - self.purse.spent <= self.reserve

    @property
    def draws(self) -> int:
        """Steps that may be drawn now."""
        return self.purse.draws(1 if self.hurried else self.width)

    @property
    def exhausted(self) -> bool:
        """Whether nothing new was found for long."""
        return self._idle >= IDLE

    def grow(self, node: Node, steps: Sequence[Step]) -> list[Node]:
        """Put drawn steps below a node; those of its new children that are to be valued."""
        fresh = node.add(steps)
        self.purse.spent += sum(len(step.tokens) for step in steps)
        self.nodes += len(fresh)
        self.finished |= any(child.state == "finished" for child in fresh)
        self._idle = 0 if fresh else self._idle + 1
        for child in fresh:
            if child.state == "cut":  # without an answer it is worth nothing, and nobody need be asked
                child.backup(0.0)
        return [child for child in fresh if child.state != "cut"]

    def found(self) -> Found:
        """The finished completions."""
        leaves, waiting = [], [self.root]
        while waiting:
            node = waiting.pop(0)
            waiting += node.children.values()
            if node.state == "finished":
                leaves.append(leaf_of(node))
        return Found(
            problem=self.problem,
            leaves=(*leaves, *(leaf for one in self.rollouts for leaf in one.leaves())),
            tokens=self.purse.spent,
            nodes=self.nodes,
            ended="exhausted" if self.exhausted else "budget",
        )


def value_nodes(judge: Judge, asked: Sequence[tuple[Problem, Tokens, int, Sequence[Node]]]) -> list[tuple[int, list[Rollout]]]:
    """Value the nodes of several problems at once; the tokens that it took for each, and what finished on the way.

    Args:
        judge: values.
        asked: of each problem, its prompt, how often its search has asked before, and the nodes.
    """
    asking = [Asked(problem, prompt, tuple(node.tokens for node in nodes), turn) for problem, prompt, turn, nodes in asked if nodes]
    judged = iter(judge(asking) if asking else [])
    out: list[tuple[int, list[Rollout]]] = []
    for _, _, _, nodes in asked:
        if not nodes:
            out.append((0, []))
            continue
        values, tokens, finished = next(judged)
        written: dict[int, list[Tokens]] = {}
        for place, whole in finished:
            written.setdefault(place, []).append(whole)
        for node, value in zip(nodes, values, strict=True):
            node.value = value
        out.append((tokens, [Rollout(nodes[place], tuple(rows)) for place, rows in written.items()]))
    return out


class TreeSearch:
    """Monte Carlo tree search.

    Args:
        stepper: draws steps.
        judge: values completions; a new one for each search, where it keeps what it has seen.
        render: a problem's prompt tokens.
        seed: a step's stream is (seed, problem id, drawing, index).
        width: k, steps drawn at once.
        exploration: c of the rule; of values in [0, 1].
    """

    name = "tree"

    def __init__(
        self,
        stepper: Stepper,
        judge: Judge,
        render: Callable[[Problem], Tokens],
        *,
        seed: int,
        width: int = 4,
        exploration: float = 1.0,
    ) -> None:
        check_search(width=width, exploration=exploration)
        self.stepper, self.judge, self.render, self.seed = stepper, judge, render, seed
        self.width, self.exploration = width, exploration

    def run(self, problems: Sequence[Problem], budget: int, on_progress: Callable[[int], None] | None = None) -> list[Found]:
        """Search, all problems side by side.

        Args:
            problems: with distinct ids.
            budget: generated tokens of each, the judge's included; exceeded by less than the most that one step and its value can cost.
            on_progress: called with the number of tokens that were just generated.
        """
        unit = self.stepper.max_step_tokens + self.judge.most_tokens
        trees = [
            Tree(
                one,
                self.render(one),
                Purse(budget, unit),
                width=self.width,
                exploration=self.exploration,
                reserve=self.stepper.max_new_tokens,
            )
            for one in problems
        ]
        while wave := [(tree, node) for tree in trees if (node := tree.select()) is not None]:
            before = sum(tree.purse.spent for tree, _ in wave)
            self._expand(wave)
            if on_progress is not None:
                on_progress(sum(tree.purse.spent for tree, _ in wave) - before)
        return [tree.found() for tree in trees]

    def _expand(self, wave: Sequence[tuple[Tree, Node]]) -> None:
        """Draw from a node of each of these trees, value the new nodes and back the values up."""
        seeds = [[derive(self.seed, "search_tree", tree.problem.id, tree.turn, i) for i in range(tree.draws)] for tree, _ in wave]
        drawn = self.stepper.sample([tree.prompt for tree, _ in wave], [node.tokens for _, node in wave], seeds)
        fresh = [tree.grow(node, steps) for (tree, node), steps in zip(wave, drawn, strict=True)]
        asked = [(tree.problem, tree.prompt, tree.turn, nodes) for (tree, _), nodes in zip(wave, fresh, strict=True)]
        for (tree, _), nodes, (tokens, rollouts) in zip(wave, fresh, value_nodes(self.judge, asked), strict=True):
            for node in nodes:
                node.backup(node.value)
            tree.purse.spent += tokens
            tree.rollouts += rollouts
            tree.finished |= bool(rollouts)
            tree.turn += 1


def check_search(**numbers: float) -> None:
    """RecipeError for a width below 1 or a negative exploration."""
    for name, value in numbers.items():
        if value < (0 if name == "exploration" else 1):
            raise RecipeError(f"search: {name} is {value}; expected {'0' if name == 'exploration' else '1'} or more.")
