"""A run's watch on its learned reward: the gap of each step, and what is done where it opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sharpen.records import Scores
from sharpen.rewards import gaming
from sharpen.rewards.gaming import METRIC, RULE, GamingSettings
from sharpen.tracking import events
from sharpen.tracking.events import EventLog

Output = Literal["logit", "probability"]


@dataclass
class Watch:
    """What the trainer asks after each rollout. It has no state of its own but the gaps of past steps, which the event log keeps.

    Attributes:
        outputs: the learned parts of the reward, with what their values are; of several, the largest gap counts.
        settings: None only records the gap.
        counts: whether a learned part counts in the reward of a step; what the others' gaps do is no gaming.
        fall_back: told the first step whose reward is the rule's alone.
        gaps: by step, of those so far that count and have one.
        opened: the step at which the gap opened.
    """

    outputs: Mapping[str, Output]
    settings: GamingSettings | None = None
    counts: Callable[[int], bool] = lambda step: True
    fall_back: Callable[[int], None] = lambda step: None
    gaps: dict[int, float] = field(default_factory=dict)
    opened: int | None = None

    def resume(self, log: EventLog) -> None:
        """Learn of the steps that the log has."""
        if self.outputs and log.path.is_file():
            steps = {entry["step"]: entry["metrics"].get(METRIC) for entry in events.read(log.path) if entry["event"] == "step"}
            self.gaps = {step: gap for step, gap in steps.items() if gap is not None and self.counts(step)}
            self._look()

    @property
    def stops(self) -> bool:
        """Whether training is to end."""
        return self.opened is not None and self.settings is not None and self.settings.then == "stop"

    def weights(self, step: int, usual: Mapping[str, float]) -> Mapping[str, float]:
        """What the reward of a step is the sum of."""
        fallen = self.opened is not None and self.settings is not None and self.settings.then == "rule"
        return {RULE: 1.0} if fallen and step > (self.opened or 0) else usual

    def see(self, step: int, scores: Scores) -> dict[str, float]:
        """The metrics of a step's rewards; nothing where no part is learned."""
        if not self.outputs:
            return {}
        found = [gaming.gap(scores.parts[name], scores.correct, output) for name, output in self.outputs.items()]
        known = [one for one in found if one is not None]
        if not known:
            return {}
        if self.counts(step):
            self.gaps[step] = max(known)
            self._look()
        return {METRIC: max(known)}

    def windows(self) -> tuple[list[float], list[float]]:
        """The gaps that are compared: of the first window, and of the last so far."""
        assert self.settings is not None
        gaps = list(self.gaps.values())
        return gaps[: self.settings.window], gaps[-self.settings.window :]

    def told(self) -> str:
        """What is said, once, after the step at which it opened."""
        assert self.settings is not None
        size, then = self.settings.window, self.settings.then
        first, last = (sum(gaps) / size for gaps in self.windows())
        done = {
            "warn": "Read completions (sharpen inspect); rewards.gaming.then = stop or rule would act.",
            "stop": "Training ends here, as rewards.gaming.then = stop asks.",
            "rule": f"From the next step on the reward is {RULE} alone, as rewards.gaming.then = rule asks.",
        }[then]
        return (
            f"the learned reward is being gamed: on the same completions the reward model's mean probability lies {100 * last:+.0f} points "
            f"from the rule's accuracy, and lay {100 * first:+.0f} at the beginning ({size} steps each). {done}"
        )

    def _look(self) -> None:
        if self.settings is not None and self.opened is None:
            self.opened = gaming.opened_at(self.gaps, self.settings)
            if self.opened is not None and self.settings.then == "rule":
                self.fall_back(self.opened + 1)
