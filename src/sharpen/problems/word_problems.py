"""Generated word problems with worked solutions in GSM8K's form: for where GSM8K itself cannot be had.

Ten stories of two to four steps, told with other names and numbers each time. They are easier than GSM8K and much alike: a figure
measured on them says nothing of GSM8K.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sharpen import streams
from sharpen.problems.worked import evaluate, pieces, show
from sharpen.records import Problem

NAMES = ("Ada", "Ben", "Carla", "Dinh", "Elif", "Femi", "Gita", "Hugo", "Ines", "Jonas", "Kemi", "Lena", "Mateo", "Nadia", "Omar", "Pia")


@dataclass(frozen=True, slots=True)
class Story:
    """A kind of word problem.

    Attributes:
        question: the text, with `{name}` and the numbers `{a}`, `{b}`, ...
        steps: of each step the text before, the expression over numbers and earlier results `{r1}`, `{r2}`, ..., and the text after. A
            text before that ends in `$` puts the sign before the result.
        ranges: the least and the greatest of each number.
    """

    question: str
    steps: tuple[tuple[str, str, str], ...]
    ranges: dict[str, tuple[int, int]]


STORIES = (
    Story(
        "{name} buys {a} boxes of pencils with {b} pencils in each box. {name} gives {c} pencils to the class. How many pencils are left?",
        (("{name} buys", "{a}*{b}", " pencils."), ("There are", "{r1}-{c}", " pencils left.")),
        {"a": (3, 12), "b": (6, 24), "c": (5, 40)},
    ),
    Story(
        "{name} works {a} hours a day for ${b} per hour. How much money does {name} earn in {c} days, after paying ${d} for lunches?",
        (
            ("{name} works", "{a}*{c}", " hours."),
            ("That pays $", "{r1}*{b}", "."),
            ("After lunches {name} has $", "{r2}-{d}", "."),
        ),
        {"a": (3, 9), "b": (8, 25), "c": (2, 14), "d": (11, 90)},
    ),
    Story(
        "A farm has {a} hens and {b} ducks. Each bird lays {c} eggs per week. The eggs are packed in cartons of {d}. "
        "How many cartons are filled?",
        (
            ("The farm has a total of", "{a}+{b}", " birds."),
            ("They lay", "{r1}*{c}", " eggs per week."),
            ("That fills", "{r2}/{d}", " cartons."),
        ),
        {"a": (5, 40), "b": (4, 30), "c": (3, 8), "d": (6, 12)},
    ),
    Story(
        "A ticket costs ${a} for adults and ${b} for children. {c} adults and {d} children visit the museum. "
        "How much do they pay in total?",
        (
            ("The adults pay $", "{a}*{c}", "."),
            ("The children pay $", "{b}*{d}", "."),
            ("Together they pay a total of $", "{r1}+{r2}", "."),
        ),
        {"a": (9, 24), "b": (3, 8), "c": (2, 15), "d": (3, 26)},
    ),
    Story(
        "{name} reads {a} pages on Monday, {b} more pages than that on Tuesday, and {c} pages on Wednesday. "
        "How many pages is that in total?",
        (("On Tuesday {name} reads", "{a}+{b}", " pages."), ("The total is", "{a}+{r1}+{c}", " pages.")),
        {"a": (12, 60), "b": (3, 30), "c": (8, 70)},
    ),
    Story(
        "{name} has {a} stickers and shares them equally among {b} friends. Each friend then buys {c} packs of {d} stickers. "
        "How many stickers does each friend have?",
        (
            ("Each friend gets", "{a}/{b}", " stickers."),
            ("The packs hold", "{c}*{d}", " stickers."),
            ("Each friend has a total of", "{r1}+{r2}", " stickers."),
        ),
        {"a": (20, 180), "b": (3, 9), "c": (2, 6), "d": (5, 15)},
    ),
    Story(
        "A tank holds {a} liters. A pump fills in {b} liters per minute, and a leak loses {c} liters per minute. "
        "How many minutes does it take to fill the tank after {d} liters are in it already?",
        (
            ("Each minute there are", "{b}-{c}", " liters more."),
            ("There are still", "{a}-{d}", " liters to fill."),
            ("It takes", "{r2}/{r1}", " minutes."),
        ),
        {"a": (100, 400), "b": (8, 30), "c": (2, 7), "d": (10, 90)},
    ),
    Story(
        "{name} saves ${a} per week for {b} weeks and gets ${c} from an aunt. A bicycle costs ${d}. How much more money does {name} need?",
        (
            ("{name} saves $", "{a}*{b}", "."),
            ("With the gift that makes a total of $", "{r1}+{c}", "."),
            ("{name} still needs $", "{d}-{r2}", "."),
        ),
        {"a": (5, 20), "b": (4, 12), "c": (10, 45), "d": (150, 420)},
    ),
    Story(
        "A bakery makes {a} trays of {b} rolls every day. It sells {c} rolls in the morning and {d} in the afternoon. "
        "The rest is split equally among {e} shelters. How many rolls does each shelter get?",
        (
            ("The bakery makes", "{a}*{b}", " rolls."),
            ("It sells a total of", "{c}+{d}", " rolls."),
            ("There are", "{r1}-{r2}", " rolls left."),
            ("Each shelter gets", "{r3}/{e}", " rolls."),
        ),
        {"a": (8, 25), "b": (12, 30), "c": (30, 120), "d": (25, 110), "e": (2, 8)},
    ),
    Story(
        "{name} runs {a} laps of {b} meters on each of {c} days, and walks {d} meters on another day. How many meters is that altogether?",
        (
            ("Each day {name} runs", "{a}*{b}", " meters."),
            ("In all those days that is", "{r1}*{c}", " meters."),
            ("Altogether it is", "{r2}+{d}", " meters."),
        ),
        {"a": (2, 9), "b": (150, 400), "c": (2, 6), "d": (500, 3000)},
    ),
)


def generate(count: int, *, seed: int) -> list[Problem]:
    """So many different problems, with their worked solutions as `meta["solution"]`; fewer are the beginning of more."""
    rng = streams.generator(seed, "word problems")
    made: dict[str, Problem] = {}
    while len(made) < count:
        told = tell(STORIES[int(rng.integers(len(STORIES)))], rng)
        if told is not None and told[0] not in made:
            question, solution, answer = told
            made[question] = Problem(id=f"generated/{len(made)}", prompt=question, answer=answer, meta={"solution": solution})
    return list(made.values())


def tell(story: Story, rng: np.random.Generator) -> tuple[str, str, str] | None:
    """The question, the solution and the answer of a story with numbers drawn anew; None where a result is not a positive whole number."""
    values = {key: str(int(rng.integers(low, high + 1))) for key, (low, high) in story.ranges.items()}
    values["name"] = NAMES[int(rng.integers(len(NAMES)))]
    lines: list[str] = []
    result = Fraction(0)
    for number, (before, expression, after) in enumerate(story.steps, start=1):
        parts = pieces(expression.format(**values)) or ()
        found = evaluate(parts)
        if found is None or found.denominator != 1 or found <= 0:
            return None
        result = found
        values[f"r{number}"] = show(result)
        before, sign = (before[:-1].rstrip(), "$") if before.endswith("$") else (before, "")
        equation = f"{' '.join(parts)} = {sign}<<{''.join(parts)}={show(result)}>>{show(result)}"
        lines.append(f"{before.format(**values)} {equation}{after}")
    return story.question.format(**values), "\n".join([*lines, f"#### {show(result)}"]), show(result)
