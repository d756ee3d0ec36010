"""Step-level beam search: of all that the beams go on with, the most valuable go on (Snell et al. 2024, arXiv:2408.03314, §5.1).

B · k first steps are drawn; then each of B beams draws k next ones. Of the new nodes and the finished ones the B of the highest value stay
(equal ones: those drawn first). When all are finished, or none is left, it begins again with other draws, until the budget is used up.
Equal steps are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sharpen.records import Problem
from sharpen.search.judges import Judge, Tokens
from sharpen.search.steps import Stepper
from sharpen.search.tree import Found, Leaf, Node, Purse, check_search, leaf_of, value_nodes
from sharpen.streams import derive


class _Beams:
    """One problem's search."""

    def __init__(self, problem: Problem, prompt: Tokens, purse: Purse) -> None:
        self.problem, self.prompt, self.purse = problem, prompt, purse
        self.kept: list[Node] = [Node()]
        self.leaves: list[Leaf] = []
        self.turn = self.nodes = 0

    def open(self) -> list[Node]:
        """The beams that may go on."""
        return [node for node in self.kept if node.state == "open"]

    def harvest(self) -> None:
        """Take the finished beams."""
        self.leaves += [leaf_of(one) for one in self.kept if one.state == "finished"]


class BeamSearch:
    """Beam search; the arguments are those of `TreeSearch`, and `beams` is B."""

    name = "beam"

    def __init__(
        self, stepper: Stepper, judge: Judge, render: Callable[[Problem], Tokens], *, seed: int, width: int = 4, beams: int = 4
    ) -> None:
        check_search(width=width, beams=beams)
        self.stepper, self.judge, self.render, self.seed, self.width, self.beams = stepper, judge, render, seed, width, beams

    def run(self, problems: Sequence[Problem], budget: int, on_progress: Callable[[int], None] | None = None) -> list[Found]:
        """Search; see `TreeSearch.run`."""
        unit = self.stepper.max_step_tokens + self.judge.most_tokens
        every = [_Beams(one, self.render(one), Purse(budget, unit)) for one in problems]
        while wave := [one for one in every if one.purse.draws(1)]:
            before = sum(one.purse.spent for one in wave)
            self._advance(wave)
            if on_progress is not None:
                on_progress(sum(one.purse.spent for one in wave) - before)
        for one in every:
            one.harvest()
        return [Found(problem=one.problem, leaves=tuple(one.leaves), tokens=one.purse.spent, nodes=one.nodes) for one in every]

    def _advance(self, wave: Sequence[_Beams]) -> None:
        """Draw from every open beam of these problems, value what is new, and keep the best."""
        asks: list[tuple[_Beams, Node, list[int]]] = []
        for one in wave:
            beams = one.open()
            draws = one.purse.draws(self.width * (len(beams) if one.kept[0].parent else self.beams))
            for place, node in enumerate(beams):
                own = len(range(place, draws, len(beams)))  # dealt out in turn where the budget is short
                if own:
                    asks.append((one, node, [derive(self.seed, "search_beam", one.problem.id, one.turn, place, i) for i in range(own)]))
        drawn = self.stepper.sample([one.prompt for one, _, _ in asks], [node.tokens for _, node, _ in asks], [seeds for *_, seeds in asks])
        fresh: dict[int, list[Node]] = {id(one): [] for one in wave}
        for (one, node, _), steps in zip(asks, drawn, strict=True):
            fresh[id(one)] += [child for child in node.add(steps) if child.state != "cut"]
            one.purse.spent += sum(len(step.tokens) for step in steps)
        asked = [(one.problem, one.prompt, one.turn, fresh[id(one)]) for one in wave]
        for one, (tokens, rollouts) in zip(wave, value_nodes(self.judge, asked), strict=True):
            candidates = [node for node in one.kept if node.state == "finished"] + fresh[id(one)]
            one.kept = sorted(candidates, key=lambda node: -node.value)[: self.beams]
            one.purse.spent += tokens
            one.leaves += [leaf for rollout in rollouts for leaf in rollout.leaves()]
            one.turn += 1
            one.nodes += len(fresh[id(one)])
            if not one.open():
                one.harvest()
                one.kept = [Node()]
