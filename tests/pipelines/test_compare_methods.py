"""Methods side by side: runs, curves, intervals over seeds, the table and the plot."""

from __future__ import annotations

import io
import json
import math
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from sharpen.errors import RecipeError, RunError
from sharpen.pipelines.compare_methods import Curve, against_baseline, compare_methods, flat, judged, load_comparison, margin, paired
from sharpen.reports import curves
from tiny import build_tiny

RECIPE = """
model = "{place}/model"

[problems.train]
source = "arithmetic"
levels = [1]
count = 8

[problems.held_out]
source = "arithmetic"
levels = [1]
split = "held_out"
count = 4

[rollout]
problems = 2
group_size = 2
max_new_tokens = 12

[[rewards.functions]]
function = "rewards.py:digits"

[training]
steps = 4
learning_rate = 1e-3

[evaluation]
samples = 4
ks = [1, 4]
"""
REWARDS = """
def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""
COMPARISON = """
recipe = "recipe.toml"
seeds = [1, 2]
jobs = 2
output = "{place}/out"
baseline = "grpo"

[settings]
evaluation.every = 2

[methods.grpo]
method.kl_coef = 0.0

[methods."ppo λ=0.9"]
method.name = "ppo"
method.gae_lambda = 0.9

[claims.no-critic]
better = "grpo"
than = "ppo λ=0.9"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    build_tiny(folder / "model")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "recipe.toml").write_text(RECIPE.format(place=folder))
    (folder / "compare.toml").write_text(COMPARISON.format(place=folder))
    return folder


@pytest.fixture(scope="module")
def found(place: Path) -> list[Curve]:
    path = place / "compare.toml"
    return compare_methods(load_comparison(path), path=path)


def test_each_method_and_seed_has_a_run_with_its_own_settings(place: Path, found: list[Curve]) -> None:
    assert [curve.label for curve in found] == ["grpo", "ppo λ=0.9"]
    for curve in found:
        assert curve.steps == [0, 2, 4]
        assert all(len(rows) == 2 and all(len(row) == 3 for row in rows) for rows in curve.values.values())
        assert all(1.0 <= updates <= 4.0 for updates in curve.totals["updates"])  # none where all rewards are equal
        assert curve.totals["completions"] == [16.0, 16.0]
    assert found[0].totals["value_parameters"] == [0, 0]
    assert found[1].totals["value_parameters"][0] > 1000
    recipe = (place / "out" / "ppo λ=0.9" / "seed-2" / "recipe.toml").read_text()
    assert "gae_lambda = 0.9" in recipe
    assert "seed = 2" in recipe


def test_the_first_point_is_before_training_and_the_last_is_after(place: Path, found: list[Curve]) -> None:
    comparison = json.loads((place / "out" / "grpo" / "seed-1" / "evaluation" / "comparison.json").read_text())
    row = found[0].values["pass@4"][0]
    assert row[0] == comparison["before"]["pass_at_k"]["4"]["value"]
    assert row[-1] == comparison["after"]["pass_at_k"]["4"]["value"]


def test_what_is_finished_is_not_run_again(place: Path, found: list[Curve]) -> None:
    path = place / "compare.toml"
    model = place / "out" / "grpo" / "seed-1" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    assert compare_methods(load_comparison(path), path=path) == found
    assert model.stat().st_mtime_ns == before


def test_the_interval_of_a_mean_by_hand() -> None:
    # 0.2, 0.4, 0.6: mean 0.4, deviation 0.2, t(2) = 4.303: 4.303 · 0.2 / √3 = 0.4969
    assert margin([0.2, 0.4, 0.6]) == pytest.approx(0.4969, abs=1e-4)
    assert math.isnan(margin([0.2]))


def test_the_table_and_the_plot(found: list[Curve], tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(curves.table(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Pass@1" in text
    assert "Maj@4" in text
    assert "ppo λ=0.9" in text
    image = curves.plot(found, tmp_path / "curves.png")
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_size > 20_000


def ended(label: str, *values: float) -> Curve:
    return Curve(label=label, steps=[0, 4], values={"pass@1": [[0.9, value] for value in values]})


def test_labels_are_compared_seed_by_seed_by_hand() -> None:
    # differences 0.1, 0.3, 0.2: mean 0.2, deviation 0.1, t(2) = 4.303: 4.303 · 0.1 / √3 = 0.2484
    one = paired("c", [ended("a", 0.5, 0.6, 0.4), ended("b", 0.4, 0.3, 0.2)], better="a", than="b", metric="pass@1")
    assert one.differences == pytest.approx([0.1, 0.3, 0.2])
    assert (one.mean, one.margin, one.word) == (pytest.approx(0.2), pytest.approx(0.2484, abs=1e-4), "inconclusive")
    # differences 0.2, 0.3, 0.25: deviation 0.05, margin 0.1242, so the interval is above 0; the other way round it is below
    runs = [ended("a", 0.6, 0.6, 0.45), ended("b", 0.4, 0.3, 0.2)]
    assert paired("c", runs, better="a", than="b", metric="pass@1").word == "holds"
    assert paired("c", runs, better="b", than="a", metric="pass@1").word == "contradicted"
    assert paired("c", [ended("a", 0.9), ended("b", 0.1)], better="a", than="b", metric="pass@1").word == "inconclusive"  # one seed
    same = [ended("a", 0.5, 0.5), ended("b", 0.5, 0.5)]
    assert paired("c", same, better="a", than="b", metric="pass@1").word == "inconclusive"  # 0 ± 0


def test_pairing_takes_out_what_seeds_share() -> None:
    runs = [ended("a", 0.30, 0.72, 0.51), ended("b", 0.20, 0.60, 0.40)]
    assert margin([0.30, 0.72, 0.51]) > 0.5
    # differences 0.10, 0.12, 0.11: deviation 0.01, 4.303 · 0.01 / √3 = 0.0248
    one = paired("c", runs, better="a", than="b", metric="pass@1")
    assert (one.mean, one.margin, one.word) == (pytest.approx(0.11), pytest.approx(0.0248, abs=1e-4), "holds")


def test_claims_of_runs_are_written_and_shown(place: Path, found: list[Curve]) -> None:
    claims = judged(load_comparison(place / "compare.toml"), found)
    [written] = json.loads((place / "out" / "claims.json").read_text())
    last = [[row[-1] for row in curve.values["pass@1"]] for curve in found]
    assert written["differences"] == [one - other for one, other in zip(*last, strict=True)]
    assert written["word"] == claims[0].word
    console = Console(file=io.StringIO(), width=140)
    console.print(curves.claims_table(claims))
    assert "grpo − ppo λ=0.9, Pass@1" in console.file.getvalue()  # type: ignore[attr-defined]


def test_every_label_is_compared_with_the_baseline(place: Path, found: list[Curve]) -> None:
    settings = load_comparison(place / "compare.toml")
    against = against_baseline(settings, found, ["pass@1", "maj@4"])
    assert [(one.better, one.than, one.metric) for one in against] == [("ppo λ=0.9", "grpo", "pass@1"), ("ppo λ=0.9", "grpo", "maj@4")]
    grpo, ppo = ([row[-1] for row in curve.values["maj@4"]] for curve in found)
    written = json.loads((place / "out" / "differences.json").read_text())
    assert written[1]["differences"] == [one - other for one, other in zip(ppo, grpo, strict=True)]
    assert written[1]["word"] == against[1].word
    assert against_baseline(settings.model_copy(update={"baseline": None}), found, ["pass@1"]) == []


def test_the_table_against_the_baseline() -> None:
    runs = [ended("a", 0.6, 0.6, 0.45), ended("b", 0.4, 0.3, 0.2)]
    console = Console(file=io.StringIO(), width=140)
    console.print(curves.baseline_table([paired("a", runs, better="a", than="b", metric="pass@1")]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].strip() == "Against b"
    assert [line.split() for line in lines if line.startswith("a ")] == [["a", "+25.0", "±", "12.4", "%", "holds"]]


def test_settings_become_overrides() -> None:
    rows = {"rewards": {"functions": [{"function": "model", "parameters": {"path": "a b", "keep": True}}]}}
    [override] = flat(rows)
    assert tomllib.loads(override.replace("rewards.functions=", "found = ")) == {"found": rows["rewards"]["functions"]}
    assert list(flat({"method": {"name": "ppo", "gae_lambda": 0.9}, "seed": 3})) == ['method.name="ppo"', "method.gae_lambda=0.9", "seed=3"]


def test_a_faulty_comparison_is_told(place: Path) -> None:
    path = place / "bad.toml"
    path.write_text('recipe = "recipe.toml"\n[methods.grpo]\n[claims.c]\nbetter = "grop"\nthan = "grpo"\n')
    with pytest.raises(RecipeError, match=r"claims\.c\.better: there is no method 'grop'\. Did you mean 'grpo'"):
        load_comparison(path)
    path.write_text('recipe = "recipe.toml"\nbaseline = "gpo"\n[methods.grpo]\n')
    with pytest.raises(RecipeError, match=r"baseline: there is no method 'gpo'\. Did you mean 'grpo'"):
        load_comparison(path)
    path.write_text('recipe = "recipe.toml"\nseed = 1\n[methods.grpo]\n')
    with pytest.raises(RecipeError, match=r"bad\.toml: seed: Extra inputs"):
        load_comparison(path)
    path.write_text(f'recipe = "recipe.toml"\noutput = "{place}/none"\n[methods.grpo]\nmethod.nme = "grpo"\n')
    with pytest.raises(RecipeError, match=r"unknown key 'method\.nme'"):
        compare_methods(load_comparison(path), path=path)
    claim = '[claims.c]\nbetter = "a"\nthan = "b"\nmetric = "pass@2"\n'
    path.write_text(f'recipe = "recipe.toml"\noutput = "{place}/none"\n[methods.a]\n[methods.b]\n{claim}')
    with pytest.raises(RecipeError, match=r"claims\.c\.metric: the runs of 'a' measure no 'pass@2'\. Did you mean 'pass@4'"):
        compare_methods(load_comparison(path), path=path)
    assert not (place / "none").exists()


def test_whatever_toml_can_hold_survives_as_an_override() -> None:
    strings = 'text = "\U0001f600 λ \\u007f \\" \\\\d+ \\n"'
    text = strings + '\nnumbers = [1e-3, 1e22, inf, -7, true]\nday = 2020-01-02\nrows = [{ "a.b" = "\U0001f600" }]\n'
    table = tomllib.loads(text)
    assert tomllib.loads("\n".join(flat(table))) == table


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("seeds = [1, 2, 1]\n[methods.a]", "seeds: 1 is there twice"),
        ('[methods."../a"]', "methods: expected labels that name a folder within the output, got '../a'"),
        ("[settings]\noutput = 'x'\n[methods.a]", r"settings: the comparison sets output \(by output, label and seed\) itself"),
        ("[methods.a]\nseed = 5", r"methods\.a: the comparison sets seed \(by seeds\) itself"),
        ("[methods.a]\ntraining.threads = 4", r"methods\.a: the comparison sets training\.threads \(by jobs\) itself"),
        ("[methods.a]\n[claims.c]\nbetter = 'a'\nthan = 'a'", r"claims\.c: 'better' and 'than' are both 'a'"),
    ],
)
def test_what_would_count_a_run_twice_or_put_it_elsewhere_is_refused(tmp_path: Path, changes: str, told: str) -> None:
    (tmp_path / "bad.toml").write_text(f'recipe = "recipe.toml"\n{changes}\n')
    with pytest.raises(RecipeError, match=told):
        load_comparison(tmp_path / "bad.toml")


def test_a_finished_run_of_other_settings_is_not_shown_as_one_of_these(place: Path, found: list[Curve]) -> None:
    path = place / "compare.toml"
    settings = load_comparison(path)
    changed = settings.model_copy(update={"settings": settings.settings | {"training": {"learning_rate": 0.5}}})
    with pytest.raises(RunError, match=r"grpo/seed-1 is finished, and its settings differ .*: training\.learning_rate\."):
        compare_methods(changed, path=path)


def test_a_run_that_fails_is_named(place: Path) -> None:
    path = place / "fails.toml"
    path.write_text(f'recipe = "recipe.toml"\nseeds = [1]\noutput = "{place}/fails"\n[methods.grpo]\nproblems.train.count = 900\n')
    with pytest.raises(RunError, match=r"grpo/seed-1 failed with exit code 2"):
        compare_methods(load_comparison(path), path=path)
