"""A run's folder made up of chosen numbers, by the package's own writers: what a diagnosis is tested on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sharpen.evaluation import record
from sharpen.evaluation.summary import ProblemResult
from sharpen.recipe import Recipe, validate
from sharpen.records import Completion, Group, Problem, Scores
from sharpen.tracking import completions
from sharpen.tracking.events import EventLog
from sharpen.training import run_folder

GROUPS, SIZE = 8, 4


@dataclass(kw_only=True)
class MadeUp:
    """A healthy run of 24 steps; each function of the share of the run that is done, 0 to 1, may be replaced by a faulty one.

    Accuracy and reward rise from 0.3 to 0.7, answers grow alike whether right or wrong, entropy falls a little, few completions are cut.
    """

    steps: int = 24
    right: Callable[[float], float] = lambda t: 0.3 + 0.4 * t
    flat: Callable[[float], float] = lambda t: 0.25
    length_right: Callable[[float], float] = lambda t: 40 + 20 * t
    length_wrong: Callable[[float], float] = lambda t: 48 + 22 * t
    cut: Callable[[float], float] = lambda t: 0.03
    entropy: Callable[[float], float] = lambda t: 0.8 - 0.3 * t
    bonus: Callable[[float], float] = lambda t: 0.0
    metrics: Callable[[int], Mapping[str, float]] = lambda step: {}
    groups: int = GROUPS
    prompt: str = "2 + 2?"
    tokens: Callable[[int, random.Random], Sequence[int]] = lambda length, draw: range(length)
    text: Callable[[bool], str] = lambda right: "Wait, let me check: 2 + 2 = 4." if right else "It is 5."
    held_out: Mapping[int, float] = field(default_factory=lambda: {0: 0.3, 24: 0.65})
    settings: Mapping[str, Any] = field(default_factory=dict)
    reward_changes: Sequence[int] = ()

    def write(self, path: Path) -> Path:
        """Write the folder."""
        folder = run_folder.create(path, self._recipe())
        draw = random.Random(0)
        with EventLog(folder.events) as log:
            for step in range(1, self.steps + 1):
                groups, scores = self._step(step, draw)
                completions.write(completions.path_of(folder.completions, step), groups, scores, self._advantages(groups, scores))
                if step == 1 or step in self.reward_changes:
                    log.append("reward_weights", step=step, weights={"accuracy": 1.0})
                log.append("step", step=step, metrics=self._metrics(step, groups, scores, draw))
        for step, rate in self.held_out.items():
            self._evaluation(folder.evaluation / ("before" if step == 0 else f"step-{step:06d}"), step, rate, draw)
        return path

    def _advantages(self, groups: Sequence[Group], scores: Scores) -> list[list[list[float] | None]]:
        """Reward − the group's mean, the same for each token."""
        values = (scores.total - scores.total.mean(dim=1, keepdim=True)).tolist()
        return [
            [[value] * len(one.tokens) for value, one in zip(row, g.completions, strict=True)]
            for row, g in zip(values, groups, strict=True)
        ]

    def _recipe(self) -> Recipe:
        table: dict[str, Any] = {
            "model": "tiny",
            "problems": {"train": {"source": "arithmetic", "levels": [1]}},
            "rewards": {"functions": [{"function": "accuracy"}]},
            "rollout": {"problems": self.groups, "group_size": SIZE},
            "training": {"steps": self.steps},
            **self.settings,
        }
        return validate(table, where="made up")

    def _step(self, step: int, draw: random.Random) -> tuple[list[Group], Scores]:
        t = (step - 1) / max(1, self.steps - 1)
        groups, correct, reward = [], [], []
        for p in range(self.groups):
            right = self._rights(t, p, step)
            cut = [draw.random() < self.cut(t) for _ in right]
            right = [value and not late for value, late in zip(right, cut, strict=True)]
            problem = Problem(id=f"p{p}", prompt=self.prompt, answer="4", meta={"level": 1 + p % 2})
            members = tuple(self._completion(t, value, late, draw) for value, late in zip(right, cut, strict=True))
            groups.append(Group(id=f"{step}/{p}/0", problem=problem, prompt_tokens=(1,), completions=members))
            correct.append(right)
            reward.append([float(value) + self.bonus(t) for value in right])
        total = torch.tensor(reward, dtype=torch.float64)
        answers = tuple(tuple("4" if value else "5" for value in row) for row in correct)
        return groups, Scores(total=total, parts={"accuracy": total}, correct=torch.tensor(correct), answers=answers)

    def _rights(self, t: float, p: int, step: int) -> list[bool]:
        """Groups without variance first; then a wrong and a right one each, so that lengths of both are known in every step."""
        if p < round(self.groups * self.flat(t)):
            return [(p + step) % 10 < round(10 * self.right(t))] * SIZE
        ones = min(SIZE - 1, max(1, round(SIZE * self.right(t)))) if self.right(t) > 0 else 0
        return [i < ones for i in range(SIZE)]

    def _completion(self, t: float, right: bool, cut: bool, draw: random.Random) -> Completion:
        length = max(1, round((self.length_right if right else self.length_wrong)(t) + draw.uniform(-2, 2)))
        return Completion(
            tokens=tuple(self.tokens(length, draw)),
            sampling_logprobs=(-self.entropy(t) * draw.uniform(0.98, 1.02),) * length,
            text=self.text(right),
            finish_reason="length" if cut else "stop",
        )

    def _metrics(self, step: int, groups: Sequence[Group], scores: Scores, draw: random.Random) -> dict[str, float]:
        members = [one for group in groups for one in group.completions]
        t = (step - 1) / max(1, self.steps - 1)
        return {
            "age": 0.0,
            "clip_fraction": 0.01,
            "engine_gap": 0.02 * draw.uniform(0.9, 1.1),
            "entropy": self.entropy(t),
            "grad_norm": 0.5 * draw.uniform(0.8, 1.2),
            "kl": 0.05 * t,
            "length": sum(len(one.tokens) for one in members) / len(members),
            "pass_rate": float(scores.correct.double().mean()),
            "ratio": 1.0 + 0.01 * draw.uniform(-1, 1),
            "replaced_groups": 0.0,
            "reward": float(scores.total.mean()),
            "updates": float(step),
            "zero_variance": self.flat(t),
            **self.metrics(step),
        }

    def _evaluation(self, path: Path, step: int, rate: float, draw: random.Random) -> None:
        problems = [Problem(id=f"h{i}", prompt=f"{i}?", answer="4", meta={"level": 1 + i % 2}) for i in range(40)]
        groups, rows, results = [], [], []
        for problem in problems:
            right = [draw.random() < rate for _ in range(SIZE)]
            members = tuple(self._completion(step / self.steps, value, False, draw) for value in right)
            groups.append(Group(id=problem.id, problem=problem, prompt_tokens=(1,), completions=members))
            rows.append(right)
            results.append(
                ProblemResult(
                    problem_id=problem.id,
                    answers=tuple("4" if value else "5" for value in right),
                    correct=tuple(right),
                    finished=(True,) * SIZE,
                    lengths=tuple(len(one.tokens) for one in members),
                )
            )
        total = torch.tensor(rows, dtype=torch.float64)
        answers = tuple(result.answers for result in results)
        scores = Scores(total=total, parts={"accuracy": total}, correct=torch.tensor(rows), answers=answers)
        completions.write(path.with_suffix(".parquet"), groups, scores)
        settings = {"samples": SIZE, "temperature": 1.0, "template": {"name": "chat"}}
        record.write(path.with_suffix(".json"), record.record(settings, problems, results, [1], seed=0, step=step))
