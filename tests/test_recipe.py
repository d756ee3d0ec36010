"""Recipes: loading, overrides, unknown keys, and the way back to TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharpen import bundled
from sharpen.errors import RecipeError
from sharpen.methods import METHODS
from sharpen.pipelines.compare_methods import flat, load_comparison
from sharpen.pipelines.iterative_recipe import load_iterative
from sharpen.pipelines.reward_recipe import load_reward_recipe
from sharpen.recipe import Recipe, differences, load_recipe, to_table, validate

TEXT = """
model = "embedded"
[problems.train]
source = "arithmetic"
[[rewards.functions]]
function = "accuracy"
[training]
steps = 3
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "r.toml").write_text(TEXT)
    return tmp_path / "r.toml"


def test_overrides_are_toml_or_text(path: Path) -> None:
    recipe = load_recipe(path, ["model=some/model", "training.learning_rate=1e-5", "evaluation.ks=[1, 2]", "template.name=plain", "seed=7"])
    assert recipe.model == "some/model"
    assert recipe.training.learning_rate == 1e-5
    assert recipe.evaluation.ks == [1, 2]
    assert (recipe.template.name, recipe.seed) == ("plain", 7)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("training.stps=3", "unknown key 'training.stps'. Did you mean 'steps'?"),
        ("modle=x", "unknown key 'modle'. Did you mean 'model'?"),
        ("problems.train.levls=[1]", "Did you mean 'levels'?"),
        ("training.steps=0", "training.steps"),
        ("training.steps=many", "got 'many'"),
        ("method.name=grop", "Did you mean 'grpo'?"),
        ("rollout.max_new_tokens=[[2, 8]]", "begin with step 1"),
        ("rollout.max_new_tokens=[[1, 8], [1, 9]]", "begin with step 1 and rise"),
        ("training.minibatches=9", "at most rollout.problems = 8, got 9"),
        ("problems.train.source=nowhere", "nowhere"),
        ("model.name=x", "'model' is a value, not a section"),
        ("=3", "expected section.field=value"),
    ],
)
def test_faults_are_named(path: Path, override: str, told: str) -> None:
    with pytest.raises(RecipeError) as fault:
        load_recipe(path, [override])
    assert told in str(fault.value)


def test_betas_are_refused_where_nothing_uses_them(path: Path) -> None:
    chosen = ["training.optimiser=adafactor"]
    recipe = load_recipe(path, chosen)
    assert validate(to_table(recipe), where="again") == recipe
    with pytest.raises(RecipeError, match="betas: expected none with optimiser = 'adafactor'"):
        load_recipe(path, [*chosen, "training.betas=[0.9, 0.95]"])


def test_every_fault_is_told_at_once(path: Path) -> None:
    with pytest.raises(RecipeError, match=r"rollout\.group_size.*; training\.steps|training\.steps.*; rollout\.temperature|rollout\.temp"):
        load_recipe(path, ["training.steps=0", "rollout.temperature=-1"])


def test_not_toml(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("model = ")
    with pytest.raises(RecipeError, match="not valid TOML: Invalid value"):
        load_recipe(tmp_path / "r.toml")


def test_there_and_back(path: Path) -> None:
    recipe = load_recipe(path, ["rollout.max_new_tokens=[[1, 8], [5, 16]]", "rewards.functions=[{function='accuracy', weight=0.5}]"])
    again = validate(to_table(recipe), where="again")
    assert again == recipe
    assert differences(recipe, again) == []
    assert differences(recipe, load_recipe(path)) == ["rewards.functions", "rollout.max_new_tokens"]


def test_the_length_schedule(path: Path) -> None:
    rollout = load_recipe(path, ["rollout.max_new_tokens=[[1, 8], [5, 16]]"]).rollout
    assert [rollout.limit(step) for step in (1, 4, 5, 99)] == [8, 8, 16, 16]
    assert rollout.longest == 16
    assert load_recipe(path, ["rollout.max_new_tokens=12"]).rollout.limit(3) == 12


def test_a_method_with_departures(path: Path) -> None:
    method = load_recipe(path, ["method.kl_coef=0", "method.clip_high=0.28", "method.ddof=0"]).method.build()
    assert not method.needs_reference
    assert (method.surrogate.clip_low, method.surrogate.clip_high, method.advantage.ddof, method.advantage.eps) == (0.2, 0.28, 0, 1e-4)


@pytest.mark.parametrize("name", bundled.names())
def test_every_bundled_recipe_is_valid_and_says_what_it_does(name: str) -> None:
    file = bundled.find_recipe(Path(name))
    assert len(bundled.opening(file)) > 20
    text = file.read_text(encoding="utf-8")
    if name.startswith("compare"):
        settings = load_comparison(file)
        base = bundled.find_recipe(Path(settings.recipe))
        assert all(load_recipe(base, [*flat(settings.settings), *flat(changes)]) for changes in settings.methods.values())
        assert f"sharpen compare-methods recipes/{name}.toml" in text
    elif name == "reward-model":
        assert load_reward_recipe(file).reward_model == "outcome"
        assert "sharpen train-reward-model reward-model" in text
    elif name == "iterative":
        assert load_iterative(file).recipe.rounds == 2
        assert "sharpen iterate iterative" in text
    else:
        assert isinstance(load_recipe(file), Recipe)
        assert f"sharpen train {name}" in text


def test_there_is_a_recipe_for_every_method() -> None:
    assert {name.removeprefix("methods/") for name in bundled.names() if name.startswith("methods/")} == set(METHODS)
    for name in METHODS:
        assert load_recipe(bundled.find_recipe(Path("methods") / name)).method.name == name


def test_a_recipe_that_is_not_there() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'quickstart'"):
        bundled.find_recipe(Path("quickstrat"))


def test_a_comparison_of_methods_is_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text('recipe = "tiny.toml"\nseeds = [1]\n')
    with pytest.raises(RecipeError, match="it compares methods of another recipe") as caught:
        load_recipe(tmp_path / "compare.toml")
    assert f"sharpen compare-methods {tmp_path / 'compare.toml'}" in str(caught.value)
