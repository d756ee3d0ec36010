from __future__ import annotations

import textwrap

import pytest
from pydantic import ValidationError

from sharpen.errors import RewardError
from sharpen.rewards.functions import BUILT_IN
from sharpen.rewards.settings import RewardFunctionSettings, RewardSettings, load_function


def load(address, base, **parameters):
    return load_function(RewardFunctionSettings(function=address, parameters=parameters), base)


@pytest.fixture
def own(tmp_path):
    def write(text, name="own.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return tmp_path

    return write


def test_a_recipe_section():
    settings = RewardSettings.model_validate(
        {"functions": [{"function": "accuracy", "parameters": {"require_stop": True}}, {"function": "my/own.py:short", "weight": 0.1}]}
    )
    assert [(entry.name, entry.weight) for entry in settings.functions] == [("accuracy", 1.0), ("short", 0.1)]
    assert settings.fail_fast is False


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"functions": [{"function": "acuracy"}]}, "unknown reward function 'acuracy'. Did you mean 'accuracy'?"),
        ({"functions": [{"function": "accuracy", "wieght": 2}]}, "wieght"),
        ({"functions": [{"function": "accuracy"}], "failfast": True}, "failfast"),
        ({"functions": [{"function": "accuracy", "weight": float("nan")}]}, "finite"),
        ({"functions": []}, "at least 1"),
        ({"functions": [{"function": "accuracy", "weight": 0}]}, "every weight is 0"),
        ({"functions": [{"function": "accuracy", "from_step": 0}]}, "from_step"),
        ({"functions": [{"function": "accuracy", "from_step": 9, "until_step": 8}]}, "expected at least from_step = 9, got 8"),
    ],
)
def test_faults_of_a_section_are_named(section, message):
    with pytest.raises(ValidationError) as fault:
        RewardSettings.model_validate(section)
    assert message in str(fault.value)


def test_built_in_functions_load_by_name():
    for name, function in BUILT_IN.items():
        assert load(name, None) is function


def test_a_parameter_the_function_does_not_take_is_refused(own):
    with pytest.raises(RewardError, match=r"no parameter 'require_stopp'\. Did you mean 'require_stop'"):
        load("accuracy", None, require_stopp=True)
    with pytest.raises(RewardError, match="takes none"):
        load("finished", None, strict=True)
    with pytest.raises(RewardError, match="'answer' is a column"):
        load("own.py:f", own("def f(prompts, completions, **columns): return []"), answer="8")
    assert load("own.py:f", own("def f(completions, limit): return []"), limit=8).__name__ == "f"


def test_a_function_of_the_users_own(own):
    base = own("""
        from dataclasses import dataclass

        @dataclass  # looks its module up by name
        class Limit:
            tokens: int

        def short(prompts, completions, **columns):
            return [float(len(text) <= Limit(3).tokens) for text in completions]
    """)
    assert load("own.py:short", base)(prompts=[], completions=["ab", "abcd"]) == [1.0, 0.0]
    assert load(f"{base}/own.py:short", None)(prompts=[], completions=["abc"]) == [1.0]  # an absolute path


def test_two_files_of_one_name_do_not_meet(own, tmp_path):
    own("def f(**columns): return [1.0]")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "own.py").write_text("def f(**columns): return [2.0]")
    first, second = load("own.py:f", tmp_path), load("other/own.py:f", tmp_path)
    assert (first(), second()) == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("text", "address", "message"),
    [
        (None, "missing.py:f", "there is no file"),
        ("def short(**columns): ...", "own.py:shorts", r"has no 'shorts'. Did you mean 'short'\?"),
        ("short = 3", "own.py:short", "'short' in .* is a int, expected a function"),
        ("import nothing_of_this_name", "own.py:f", "fails to import.*nothing_of_this_name"),
        ("x = 1\ny = 1 / 0", "own.py:f", "fails to import.*line 2.*ZeroDivisionError"),
        ("def f(:", "own.py:f", "fails to import.*SyntaxError"),
        ("raise SystemExit(1)", "own.py:f", "fails to import.*SystemExit"),
    ],
)
def test_faults_of_a_file_are_told(own, text, address, message):
    base = own(text or "")
    with pytest.raises(RewardError, match=f"(?s){message}"):
        load(address, base)


def test_a_file_that_is_not_python(own):
    with pytest.raises(RewardError, match="not a Python file"):
        load("own.txt:f", own("f", name="own.txt"))


def scheduled(*entries):
    return RewardSettings.model_validate({"functions": [{"function": name, **rest} for name, rest in entries]})


def test_a_part_enters_and_leaves():
    # DeepSeek-R1's preference rewards count in the last 400 of 1,700 steps
    settings = scheduled(
        ("accuracy", {}),
        ("finished", {"weight": 0.5, "until_step": 1300}),
        ("boxed", {"weight": 2.0, "from_step": 1301}),
        ("accuracy", {"weight": 0}),
    )
    assert list(settings.parts) == ["accuracy", "finished", "boxed", "accuracy_2"]
    assert settings.weights(1) == settings.weights(1300) == {"accuracy": 1.0, "finished": 0.5}
    assert settings.weights(1301) == settings.weights(1700) == {"accuracy": 1.0, "boxed": 2.0}


@pytest.mark.parametrize(
    ("entries", "steps", "step"),
    [
        ([("accuracy", {"from_step": 3})], 5, 1),
        ([("accuracy", {"until_step": 3})], 5, 4),
        ([("accuracy", {"until_step": 5})], 5, None),
        ([("accuracy", {"until_step": 2}), ("boxed", {"from_step": 3})], 9, None),
        ([("accuracy", {"until_step": 2}), ("boxed", {"from_step": 4})], 9, 3),
        ([("accuracy", {"until_step": 2}), ("boxed", {"weight": 0})], 9, 3),
    ],
)
def test_a_step_in_which_nothing_counts_is_found(entries, steps, step):
    assert scheduled(*entries).step_without(steps) == step


def test_a_function_of_an_installed_module(own, tmp_path, monkeypatch):
    (tmp_path / "made_up_package").mkdir()
    own("def f(completions, **columns): return [3.0] * len(completions)", "made_up_package/rewards.py")
    own("import nothing_of_this_name", "made_up_package/broken.py")
    own("", "made_up_package/__init__.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load("made_up_package.rewards:f", None)(completions=["a"]) == [3.0]
    with pytest.raises(RewardError, match=r"(?s)has no 'g'.*It has: f"):
        load("made_up_package.rewards:g", None)
    with pytest.raises(RewardError, match=r"there is no module 'made_up_package.reward', and no file"):
        load("made_up_package.reward:f", None)
    with pytest.raises(RewardError, match=r"there is no module 'made_up_pakage'"):
        load("made_up_pakage.rewards:f", None)
    with pytest.raises(RewardError, match=r"(?s)module made_up_package\.broken fails to import.*nothing_of_this_name"):
        load("made_up_package.broken:f", None)


def test_an_argument_that_sharpen_gives_is_no_parameter():
    with pytest.raises(RewardError, match="'trainer_state' is an argument that sharpen gives"):
        load("accuracy", None, trainer_state=1)
