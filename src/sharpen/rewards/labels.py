"""What a reward model learns from: a completion's tokens, with a label of the whole and labels of its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sharpen.errors import RewardError


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One completion with labels.

    Attributes:
        problem_id: the problem's.
        prompt_tokens: the token ids that the completion continues, template included.
        completion_tokens: the completion's token ids, the stop token included when there is one; at least one.
        label: of the whole: 1.0 right, 0.0 wrong, a share between them when soft, NaN when unknown.
        steps: of each labelled step, the place of its last token in `completion_tokens` and its label in [0, 1]: `((3, 1.0), (9, 0.0))`
            for a completion of ten tokens in two steps. Places rise; a step without a label is not there.

    Raises:
        RewardError: a field that is none of this; the message names the problem.
    """

    problem_id: str
    prompt_tokens: tuple[int, ...]
    completion_tokens: tuple[int, ...]
    label: float
    steps: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        where = f"Labels of a completion of problem '{self.problem_id}'"
        if not self.problem_id:
            raise RewardError("Labels of a completion: its problem has no id.", fix="Give each problem an id.")
        if not self.completion_tokens:
            raise RewardError(f"{where}: the completion has no token.", fix="Leave empty completions out.")
        for name, tokens in (("prompt", self.prompt_tokens), ("completion", self.completion_tokens)):
            if (bad := next((token for token in tokens if token < 0), None)) is not None:
                raise RewardError(f"{where}: the {name} has token id {bad}; expected ids of at least 0.", fix="Give token ids.")
        if not (math.isnan(self.label) or 0.0 <= self.label <= 1.0):
            raise RewardError(f"{where}: expected a label from 0 to 1, or NaN for unknown; got {self.label!r}.", fix="Mend the label.")
        before, last = -1, len(self.completion_tokens) - 1
        for end, label in self.steps:
            if not before < end <= last:
                raise RewardError(
                    f"{where}: a step ends at token {end}; expected places that rise, from {before + 1} to {last}.",
                    fix="Give each step once, by the place of its last token in the completion.",
                )
            if not 0.0 <= label <= 1.0:  # NaN fails it too
                raise RewardError(
                    f"{where}: the step that ends at token {end} has label {label!r}; expected one from 0 to 1.",
                    fix="Leave steps without a label out.",
                )
            before = end
