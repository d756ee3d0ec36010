"""The guard against gaming: what a careless reward pays for is found, and a careful one is left in peace."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from sharpen import cli
from sharpen.bundled import find_recipe
from sharpen.errors import RewardError
from sharpen.grading import grade
from sharpen.pipelines.audit_reward import audit_reward
from sharpen.recipe import load_recipe
from sharpen.records import Problem
from sharpen.rewards import score as score_module
from sharpen.rewards.attacks import ANOTHER, COSTLY, WRONG, another_value, attacks, honest, same
from sharpen.rewards.audit import Audit, audit
from sharpen.rewards.score import Scorer
from sharpen.rewards.settings import RewardSettings

PROBLEMS = [Problem(id=f"p{a}", prompt=f"What is {a} * 8?", answer=str(8 * a)) for a in (2, 4, 7)]
LETTERS = [Problem(id=f"c{x}", prompt=f"Which one, {x}?\nA. one\nB. two\nC. three\nD. four", answer=x, kind="choice") for x in "ABCD"]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    # The library is loaded first: an import that the limit cuts short leaves it half loaded.
    assert grade(Problem(id="warm", prompt="?", answer=r"\sqrt{3}"), r"\boxed{\frac{\sqrt{12}}{2}}").outcome == "right"
    monkeypatch.setattr("sharpen.grading.math.TIME_LIMIT", 0.5)


def run(monkeypatch: pytest.MonkeyPatch, problems: list[Problem], *functions: object) -> Audit:
    """Audit the sum of these functions, named f0, f1, …; a name is a built-in one."""
    entries = [{"function": f if isinstance(f, str) else f"own.py:f{i}"} for i, f in enumerate(functions)]
    settings = RewardSettings.model_validate({"functions": entries})
    real = score_module.load_function
    given = {f"own.py:f{i}": f for i, f in enumerate(functions)}
    monkeypatch.setattr(score_module, "load_function", lambda entry, base: given.get(entry.function) or real(entry, base))
    return audit(problems, Scorer(settings), settings.weights(1))


def gold_somewhere(completions, answer, **_):
    return [float(gold in text) for text, gold in zip(completions, answer, strict=True)]


def only_the_box(completions, answer, **_):
    return [float(text == rf"\boxed{{{gold}}}") for text, gold in zip(completions, answer, strict=True)]


def last_number(completions, answer, **_):
    return [float((re.findall(r"\d+", text) or [""])[-1] == gold) for text, gold in zip(completions, answer, strict=True)]


def brief(completions, **_):
    return [1 / (1 + len(text)) for text in completions]


def breaks_on_length(completions, answer, **_):
    if any(len(text) > 10_000 for text in completions):
        raise ValueError("too long for me")
    return [float(rf"\boxed{{{gold}}}" in text) for text, gold in zip(completions, answer, strict=True)]


def test_the_graders_are_not_fooled(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, [*PROBLEMS, *LETTERS], "accuracy")
    assert found.of("accepted") == []
    assert found.of("rejected") == []
    assert found.judging == ("accuracy",)
    assert found.threshold == 0.5
    assert found.attacks[WRONG].tried == sum(len(honest(p, "1")) for p in (*PROBLEMS, *LETTERS))
    assert found.attacks[ANOTHER].tried == 3 * 2 + 4 * 3
    assert found.attacks[COSTLY].tried == 4  # on one problem alone


@pytest.mark.parametrize("gold", ["0", "1", "2", "10", "99", "100", "-3", "11", "7425000", "0.5", r"\frac{1}{2}", r"28\%"])
def test_no_attack_is_right_by_the_graders(gold: str) -> None:
    problem = Problem(id="p", prompt="How many?", answer=gold)
    other = another_value(problem, [])
    found = [
        (trial.name, trial.text[:80])
        for trial in attacks(problem, other)
        if trial.name != COSTLY and grade(problem, trial.text).outcome == "right"
    ]
    assert found == []
    assert [trial.name for trial in honest(problem, gold) if grade(problem, trial.text).outcome != "right"] == []
    assert [trial.name for trial in honest(problem, other) if grade(problem, trial.text).outcome == "right"] == []


def test_a_reward_for_naming_the_gold_pays_for_hedging(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, PROBLEMS, gold_somewhere)
    names = {finding.name for finding in found.of("accepted")}
    assert names >= {
        "every integer",
        "hedged with or",
        "several answers",
        "right only while thinking",
        "taken back",
        "another sign",
        "denied",
    }
    assert names.isdisjoint({"nothing", "an empty box", "talk to the grader", WRONG})
    assert found.rejected == 0
    first = next(finding for finding in found.of("accepted") if finding.name == "denied")
    assert (first.problem_id, first.gold, first.reward) == ("p2", "16", 1.0)
    assert found.attacks["denied"].faults == found.attacks["denied"].tried


def test_a_reward_for_the_last_number_pays_for_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {finding.name for finding in run(monkeypatch, PROBLEMS, last_number).of("accepted")}
    assert names >= {"right only in a LaTeX comment", "right only while thinking", "a percentage of it", "right beside the answer tags"}


def test_a_reward_for_one_form_alone_turns_honest_answers_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RewardError, match="none of the parts f0 pays more for a right answer"):
        run(monkeypatch, PROBLEMS, lambda completions, **_: [0.0] * len(completions))
    found = run(monkeypatch, PROBLEMS, "accuracy", only_the_box)
    assert "accuracy" in found.judging


def test_honest_answers_that_are_turned_away_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def boxes_only(completions, answer, **_):
        return [float(rf"\boxed{{{gold}}}" in text) for text, gold in zip(completions, answer, strict=True)]

    found = run(monkeypatch, PROBLEMS, boxes_only)
    assert {finding.name for finding in found.of("rejected")} == {"a sentence", "Answer:", "in answer tags", "after ####"}
    assert found.honest["in a box"].faults == 0


def test_parts_that_do_not_look_at_the_answer_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, PROBLEMS, "accuracy", brief, "format_think", "language", "repetition")
    assert found.judging == ("accuracy",)
    assert found.accepted == 0


def test_what_cannot_be_scored_is_counted_and_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, PROBLEMS, breaks_on_length)
    assert found.attacks["a huge output"].unscorable > 0
    assert all(not math.isnan(finding.reward) for finding in found.of("accepted"))


ROOTS = [
    Problem(id="a", prompt="?", answer=r"\frac{\sqrt{2}}{2}"),
    Problem(id="b", prompt="?", answer=r"\frac{1}{\sqrt{2}}"),
    Problem(id="c", prompt="?", answer=r"\sqrt{3}"),
]


def test_formulas_that_are_taken_for_each_other_are_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, ROOTS, "accuracy")
    assert {(finding.problem_id, finding.name) for finding in found.of("unsure")} == {("a", ANOTHER), ("b", ANOTHER)}
    assert found.attacks[ANOTHER].faults == 0


def test_a_formula_that_is_taken_for_another_one_way_only_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def partial(completions, answer, **_):  # a prefix of the ground truth will do
        boxes = [(re.findall(r"\\boxed\{(.*)\}", text) or [""])[-1] for text in completions]
        return [float(bool(box) and gold.startswith(box)) for box, gold in zip(boxes, answer, strict=True)]

    found = run(monkeypatch, [Problem(id="x", prompt="?", answer="x"), Problem(id="xy", prompt="?", answer="x+y")], partial)
    assert [(f.problem_id, f.completion) for f in found.of("accepted") if f.name == ANOTHER] == [("xy", r"The answer is \boxed{x}.")]


@pytest.mark.parametrize(
    ("kind", "first", "second", "answer"),
    [
        ("math", "0.5", r"\frac12", "yes"), ("math", "56", "57", "no"), ("math", "56 ", "56", "yes"), ("math", "x+1", "1+x", "unsure"),
        ("choice", "A", "B", "no"), ("choice", "A", "a", "yes"),
    ],
)  # fmt: skip
def test_equal_ground_truths(kind: str, first: str, second: str, answer: str) -> None:
    assert same(kind, first, second) == answer


def test_the_quickstarts_reward_is_not_gamed() -> None:
    path = find_recipe(Path("quickstart"))
    found = audit_reward(load_recipe(path), recipe_path=path, limit=6)
    assert (found.problems, found.accepted, found.rejected) == (6, 0, 0)


RECIPE = """
model = "embedded"

[problems.train]
source = "arithmetic"
levels = [1]

[[rewards.functions]]
function = "rewards.py:somewhere"
until_step = 5

[[rewards.functions]]
function = "accuracy"
from_step = 6

[training]
steps = 9
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "rewards.py").write_text(
        "def somewhere(completions, answer, **_):\n    return [float(a in c) for a, c in zip(answer, completions)]\n"
    )
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


def sharpen(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["sharpen", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_the_command_fails_when_anything_is_wrongly_accepted(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recipe.parent / "found" / "audit.json"
    assert sharpen(monkeypatch, "audit-reward", recipe, "--limit", 2, "--step", 5, "--json", file) == 1
    shown = capsys.readouterr().out
    assert "Wrongly accepted" in shown and "hedged with or" in shown and "more: --json FILE has all" in shown
    table = json.loads(file.read_text())
    assert table["problems"] == 2
    assert table["judging"] == ["somewhere"]
    assert table["wrongly_accepted"] == len([f for f in table["findings"] if f["fault"] == "accepted"]) > 10
    assert all(len(finding["completion"]) <= 2000 for finding in table["findings"])


def test_the_command_tries_the_reward_of_the_last_step(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sharpen(monkeypatch, "audit-reward", recipe, "--limit", 1) == 0
    assert "judged by accuracy" in capsys.readouterr().out
