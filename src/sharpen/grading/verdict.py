"""What a grader says about a completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["right", "wrong", "unscorable"]
Mode = Literal["strict", "paper"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A grader's judgement of one completion.

    Attributes:
        outcome: `right`, `wrong`, or `unscorable`. A fault of the completion (no answer, several answers, a timeout that its text
            caused) is wrong; unscorable is only a ground truth that cannot be read, or a failure of the grader.
        reason: why, in a few words.
        extracted: the answer that was found in the completion, None when there is none.
        seconds: what judging took, on the wall clock; verdicts that differ in it alone are equal.
    """

    outcome: Outcome
    reason: str
    extracted: str | None
    seconds: float = field(default=0.0, compare=False)
