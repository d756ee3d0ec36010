"""What a grader says about a completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["right", "wrong", "unscorable"]
Mode = Literal["strict", "paper"]


@dataclass(frozen=True, slots=True)
class Grade:
    """A grader's judgement of one completion.

    Attributes:
        verdict: `right`, `wrong`, or `unscorable`. A fault of the completion (no answer, several answers, a timeout that its text
            caused) is wrong; unscorable is only a ground truth that cannot be read, or a failure of the grader.
        reason: why, in a few words.
        answer: the answer that was found in the completion, None when there is none.
    """

    verdict: Verdict
    reason: str
    answer: str | None
