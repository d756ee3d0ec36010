"""How completions are written, in numbers: their length, reflective words, languages, form, repetition, entropy.

Every figure is a mean with its count, over all completions and over the right and the wrong ones apart: an average that moves in the wrong
ones alone tells another story than one that moves in both.

Each has a 95 % interval by Student's t over the groups of a step (`intervals.quick_estimate`): the completions of one problem are alike,
and groups are the independent draws. A mean over tokens is a ratio of sums over groups. One group, or groups that all agree, give no
interval.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from sharpen.evaluation.intervals import SHARE, Measure, quick_estimate
from sharpen.rewards.functions import repetition
from sharpen.rewards.language import chain_of_thought, share

Place = Literal["training", "held-out"]
Sums = dict[tuple[str, str], dict[str, tuple[float, int]]]
"""By measure and completions meant, the sum and the count of each group."""

MEASURES: Mapping[str, str] = {
    "accuracy": "share of completions that are right; by level, and of those that ended by themselves and that were cut, too",
    "length": "tokens of a completion",
    "cut": "share of completions that the length limit cut",
    "reflective_words": "reflective words of a completion",
    "reflective_rate": "reflective words in 1,000 tokens",
    "other_language": "share of the words of a chain of thought that are in another language",
    "format_errors": "share of completions that break the format the run asks for",
    "no_answer": "share of completions without an answer",
    "repetition": "share of the 20-grams of tokens that were there before in the same completion",
    "entropy": "nats a token: the mean of −log π of the tokens that were sampled, at the temperature that sampled",
    "zero_variance": "share of groups whose rewards are all equal, which teach nothing; right, wrong: that are all right or wrong, too",
}
"""What is measured."""

SHARES = ("accuracy", "cut", "other_language", "format_errors", "no_answer", "repetition", "zero_variance")
"""The measures that lie between 0 and 1."""

NUMBERS = ("group_id", "level", "correct", "reward", "finish_reason", "length", "answer")
"""The columns that are read of every completion."""
TEXTS = ("group_id", "correct", "length", "completion", "tokens", "sampling_logprobs")
"""The columns that are read of those whose text is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number.

    Attributes:
        place: the completions that training learnt from, or those of held-out problems.
        step: of training; 0 is the model before any.
        measure: a key of `MEASURES`.
        of: `all`, `right`, `wrong`, or, of accuracy, `finished`, `cut`, `level 3`.
        value: the mean.
        count: what it is the mean over: completions, or tokens (rates, entropy), or groups (zero variance).
        low: the lower end of its 95 % interval; NaN where one group alone has a say, or all agree.
        high: the upper end.
    """

    place: Place
    step: int
    measure: str
    of: str
    value: float
    count: int
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Behaviours:
    """Every figure of a run or of an evaluation.

    Attributes:
        figures: by place, step and measure.
        notes: what was sampled, left out or taken for granted, a sentence each.
    """

    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()

    def series(self, measure: str, of: str = "all", place: Place = "training") -> dict[int, tuple[float, int]]:
        """By step, the value and its count."""
        return {one.step: (one.value, one.count) for one in self.figures if (one.measure, one.of, one.place) == (measure, of, place)}

    def bands(self, measure: str, of: str = "all", place: Place = "training") -> dict[int, tuple[float, float]]:
        """By step, the ends of the 95 % interval."""
        return {one.step: (one.low, one.high) for one in self.figures if (one.measure, one.of, one.place) == (measure, of, place)}

    def steps(self, place: Place = "training") -> list[int]:
        """The steps there are figures of."""
        return sorted({one.step for one in self.figures if one.place == place})

    def levels(self) -> list[str]:
        """The levels of problems, in order, as they stand in `of`."""
        return sorted({one.of for one in self.figures if one.of.startswith("level ")}, key=_natural)


def sums_of_numbers(rows: Sequence[Mapping[str, Any]], *, groups: bool = True) -> Sums:
    """The sums and counts of each measure that needs no text, by (measure, of).

    Args:
        rows: every completion of a step, with the columns `NUMBERS`.
        groups: whether they were sampled in groups that learn together.
    """
    sums: Sums = {}
    for row in rows:
        group = row["group_id"]
        for of in ("all", "finished" if row["finish_reason"] == "stop" else "cut"):
            _add(sums, "accuracy", of, group, float(row["correct"]))
        if row["level"] is not None:
            _add(sums, "accuracy", f"level {row['level']}", group, float(row["correct"]))
        for of in ("all", _side(row)):
            _add(sums, "length", of, group, row["length"])
            _add(sums, "cut", of, group, float(row["finish_reason"] != "stop"))
            _add(sums, "no_answer", of, group, float(row["answer"] is None))
    for group, members in _by_group(rows).items() if groups else ():
        rewards = [row["reward"] for row in members if row["reward"] is not None]
        right = [row["correct"] for row in members]
        flat = len(rewards) < 2 or min(rewards) == max(rewards)
        for of, counts in (("all", True), ("right", all(right)), ("wrong", not any(right))):
            _add(sums, "zero_variance", of, group, float(flat and counts))
    return sums


def sums_of_texts(
    rows: Iterable[Mapping[str, Any]], *, language: str, formats: Sequence[Callable[[str], bool]] = (), sampled: bool = True
) -> Sums:
    """The sums and counts of each measure that is read from text or tokens, by (measure, of).

    Args:
        rows: completions, with the columns `TEXTS`.
        language: the target, by its two letters.
        formats: what a completion must keep, each of them.
        sampled: whether the log-probabilities are those of a draw; greedy ones tell no entropy.
    """
    sums: Sums = {}
    for row in rows:
        text, words, group = row["completion"], reflective_words(row["completion"]), row["group_id"]
        logprobs = [value for value in row["sampling_logprobs"] if value is not None and not math.isnan(value)]
        for of in ("all", _side(row)):
            _add(sums, "reflective_words", of, group, words)
            _add(sums, "reflective_rate", of, group, 1000 * words, row["length"])
            _add(sums, "repetition", of, group, -float(repetition(completion_ids=[row["tokens"]])[0] or 0.0))
            if formats:
                _add(sums, "format_errors", of, group, float(not all(kept(text) for kept in formats)))
            if sampled and logprobs:
                _add(sums, "entropy", of, group, -sum(logprobs), len(logprobs))
        if chain_of_thought(text).strip():
            foreign = 1.0 - share(text, language)
            for of in ("all", _side(row)):
                _add(sums, "other_language", of, group, foreign)
    return sums


def figures(sums: Sums, place: Place, step: int) -> list[Figure]:
    """The means of these sums with their intervals, in the order of `MEASURES`."""
    order = list(MEASURES)
    found = []
    for (measure, of), by_group in sorted(sums.items(), key=lambda item: (order.index(item[0][0]), _natural(item[0][1]))):
        totals, counts = zip(*by_group.values(), strict=True)
        if not sum(counts):
            continue
        ends = quick_estimate(Measure(totals, counts, bounds=SHARE if measure in SHARES else (0.0, math.inf)))
        value = sum(totals) / sum(counts)
        one = Figure(place=place, step=step, measure=measure, of=of, value=value, count=sum(counts), low=ends.low, high=ends.high)
        found.append(one)
    return found


def reflective_words(text: str) -> int:
    """How many reflective words a text has: English ones whole and in any case, Chinese ones wherever they stand.

    `reflective_words.toml` has the list. "Wait, recheck it: 等等" has three; "a waiter unchecked" has none.
    """
    return sum(1 for _ in _pattern().finditer(text))


@functools.cache
def _pattern() -> re.Pattern[str]:
    lists = tomllib.loads(resources.files("sharpen.evaluation").joinpath("reflective_words.toml").read_text(encoding="utf-8"))
    english, chinese = ("|".join(re.escape(word) for word in sorted(lists[name], key=len, reverse=True)) for name in ("en", "zh"))
    # Not \b, which sees no edge between a Chinese and a Latin letter.
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{english})(?![A-Za-z0-9_])|{chinese}", re.IGNORECASE)


def _side(row: Mapping[str, Any]) -> str:
    return "right" if row["correct"] else "wrong"


def _by_group(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["group_id"], []).append(row)
    return found


def _add(sums: Sums, measure: str, of: str, group: str, value: float, count: int = 1) -> None:
    by_group = sums.setdefault((measure, of), {})
    total, things = by_group.get(group, (0.0, 0))
    by_group[group] = (total + value, things + count)


def _natural(name: str) -> tuple[int, float, str]:
    """`all`, `right`, `wrong`, ..., then levels by their number."""
    fixed = ("all", "right", "wrong", "finished", "cut")
    if name in fixed:
        return fixed.index(name), 0.0, name
    try:
        return len(fixed), float(name.removeprefix("level ")), name
    except ValueError:
        return len(fixed) + 1, 0.0, name
