"""Reward models as reward functions: whose tokens they read, when they are loaded, and what a recipe may say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from sharpen.errors import RewardError
from sharpen.grading import Verdict
from sharpen.models import reward_model
from sharpen.records import Completion, Group, Problem
from sharpen.rewards.learned import OutcomeReward, StepReward
from sharpen.rewards.learned_settings import LearnedSettings, OutcomeSettings
from sharpen.rewards.score import Scorer
from sharpen.rewards.settings import RewardFunctionSettings, RewardSettings, StepSettings
from tiny import IM_END, IM_START, build_tiny, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def head(model: reward_model.RewardModel) -> reward_model.RewardModel:
    with torch.no_grad():
        model.module.score.weight.copy_(torch.linspace(-1, 1, 32)[None])
    return model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    causal = build_tiny(folder / "causal")
    for kind in ("outcome", "process"):
        model = head(reward_model.new(str(causal), kind, dtype="float32", device="cpu"))  # type: ignore[arg-type]
        model.about["template"] = {"name": "chat"}  # as training writes it
        model.save(folder / kind)
    return folder


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def chat(question: str) -> tuple[int, ...]:
    messages = [{"role": "user", "content": question}]
    return tuple(TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False))


def group(question: str, *texts: str, number: int = 0, cut: bool = False) -> Group:
    end = () if cut else (IM_END,)
    reason = "length" if cut else "stop"
    completions = tuple(
        Completion(tokens=(*ids(text), *end), sampling_logprobs=(0.0,) * (len(text) + len(end)), text=text, finish_reason=reason)
        for text in texts
    )
    problem = Problem(id=f"p{number}", prompt=question, answer="8")
    return Group(id=f"0/{number}/0", problem=problem, prompt_tokens=chat(question), completions=completions)


GROUPS = [group("What is 5+3?", "5+3=8\nAnswer: 8", "9"), group("2*4?", "8", "2*4=9\nso 9\nAnswer: 9", number=1)]


def grade(problem: Problem, text: str) -> Verdict:
    return Verdict(outcome="right" if text.endswith(problem.answer) else "wrong", reason="", extracted=None, seconds=0.0)


def scorer(place: Path, *, steps: bool = False, **parameters: Any) -> Scorer:
    common = {"dtype": "float32", "device": "cpu"}
    settings = RewardSettings(
        functions=[
            RewardFunctionSettings(function="model", parameters={"path": "outcome", **common, **parameters}),
            RewardFunctionSettings(function="accuracy", weight=0.0),
        ],
        steps=StepSettings(function="model", parameters={"path": "process", **common}) if steps else StepSettings(),
    )
    return Scorer(settings, grade=grade, base=place)


def test_the_reward_is_the_models_logit_of_the_sampled_ids(place: Path) -> None:
    mine, notices = scorer(place), list[str]()
    mine.meet(TOKENIZER, notices.append)
    found = mine.score(GROUPS)
    model = reward_model.load(str(place / "outcome"), dtype="float32", device="cpu")
    expected = [model.score([g.prompt_tokens] * 2, [c.tokens for c in g.completions]) for g in GROUPS]
    assert found.total.tolist() == [pytest.approx(row, abs=1e-5) for row in expected]
    assert found.parts["accuracy"].tolist() == [[1.0, 0.0], [1.0, 0.0]]  # beside it, with weight 0
    assert notices == []


def test_probabilities_are_sigmoids(place: Path) -> None:
    one, other = scorer(place), scorer(place, output="probability")
    assert torch.allclose(one.score(GROUPS).total.sigmoid(), other.score(GROUPS).total)


def test_a_process_model_judges_a_completion_by_its_last_step(place: Path) -> None:
    found = scorer(place, path="process", output="probability").score(GROUPS)
    model = reward_model.load(str(place / "process"), dtype="float32", device="cpu")
    ends = [[[len(c.tokens) - 1] for c in g.completions] for g in GROUPS]
    said = [model.score_steps([g.prompt_tokens] * 2, [c.tokens for c in g.completions], end) for g, end in zip(GROUPS, ends, strict=True)]
    assert found.total.tolist() == [pytest.approx([one for [one] in row], abs=1e-6) for row in said]
    logits = scorer(place, path="process").score(GROUPS)
    assert torch.allclose(logits.total.sigmoid(), found.total, atol=1e-6)


def test_without_a_policy_texts_give_the_same_tokens(place: Path) -> None:
    alone = scorer(place)
    met = scorer(place)
    met.meet(TOKENIZER, lambda text: None)
    # the chat template of the reward model is the policy's, so nothing differs; the stop token is added where a text ended by itself
    assert torch.allclose(alone.score(GROUPS).total, met.score(GROUPS).total, atol=1e-5)
    cut = [group("2*4?", "8", "9", cut=True)]
    assert torch.allclose(alone.score(cut).total, met.score(cut).total, atol=1e-5)
    assert not torch.allclose(alone.score(cut).total, alone.score([group("2*4?", "8", "9")]).total, atol=1e-3)


def test_another_tokenizer_is_told_and_texts_are_encoded_anew(place: Path) -> None:
    other = tiny_tokenizer()
    other.add_tokens(["Answer"])
    mine, notices = scorer(place), list[str]()
    mine.meet(other, notices.append)

    def nonsense(completion: Completion) -> Completion:
        return replace(completion, tokens=(9, 9), sampling_logprobs=(0.0, 0.0))

    odd = [replace(one, prompt_tokens=(5,), completions=tuple(map(nonsense, one.completions))) for one in GROUPS]
    met = scorer(place)
    met.meet(TOKENIZER, lambda text: None)
    assert torch.allclose(mine.score(odd).total, met.score(GROUPS).total, atol=1e-5)
    assert len(notices) == 1 and "texts are encoded anew" in notices[0]


def test_a_model_with_another_chat_template_gets_the_question_in_its_own(place: Path, tmp_path: Path) -> None:
    model = reward_model.load(str(place / "outcome"), dtype="float32", device="cpu")
    model.about = {}
    model.tokenizer.chat_template = "{% for message in messages %}[{{ message.role }}]{{ message.content }}<|im_end|>{% endfor %}"
    model.save(tmp_path / "other")
    (tmp_path / "other" / "reward_model.json").unlink()  # as from elsewhere
    mine = scorer(tmp_path, path=str(tmp_path / "other"))
    mine.meet(TOKENIZER, lambda text: None)
    expected = model.score([(*ids("[user]2*4?"), IM_END)], [(*ids("[assistant]8"), IM_END)])
    assert mine.score([group("2*4?", "8")]).total.tolist() == [pytest.approx(expected, abs=1e-5)]


def test_steps_are_judged_by_a_process_model(place: Path) -> None:
    mine = scorer(place, steps=True)
    mine.meet(TOKENIZER, lambda text: None, decode=lambda tokens: TOKENIZER.decode(list(tokens)))
    found = mine.score(GROUPS)
    assert found.steps is not None
    model = reward_model.load(str(place / "process"), dtype="float32", device="cpu")
    one = GROUPS[1].completions[1]
    first, second = len("2*4=9\n") - 1, len("2*4=9\nso 9\n") - 1
    (expected,) = model.score_steps([GROUPS[1].prompt_tokens], [one.tokens], [[first, second]])
    # the last step is worth the completion's reward
    assert [end for end, _ in found.steps[1][1]] == [first, second, len(one.tokens) - 1]
    assert [value for _, value in found.steps[1][1]] == pytest.approx([*expected, float(found.total[1, 1])], abs=1e-5)


def test_the_ends_of_steps_are_found_in_other_tokens(place: Path) -> None:
    model = reward_model.load(str(place / "process"), dtype="float32", device="cpu")
    other = tiny_tokenizer()
    other.add_tokens(["Answer: ", "so 9"])  # the policy's tokens are longer
    reward = StepReward(LearnedSettings(path=str(place / "process"), dtype="float32", device="cpu"))
    reward.meet(other, lambda text: None)
    text = "2*4=9\nso 9\nAnswer: 9"
    tokens = (*other(text, add_special_tokens=False)["input_ids"], IM_END)
    # policy: 6 tokens to the first line's end, then "so 9" and its end
    got = reward([["", "", ""]], prompts=["2*4?"], completions=[text], prompt_ids=[[1]], completion_ids=[tokens], finish_reason=["stop"],
                 step_ends=[[5, 7, len(tokens) - 1]])  # fmt: skip
    expected = model.score_steps([chat("2*4?")], [(*ids(text), IM_END)], [[5, 10, len(text)]])
    assert got[0] == pytest.approx(expected[0], abs=1e-5)


def test_it_is_loaded_when_needed_and_kept_or_not(place: Path) -> None:
    kept, fleeting = scorer(place), scorer(place, keep=False)
    parameters = sum(p.numel() for p in reward_model.load(str(place / "outcome"), device="cpu").module.parameters())
    weights, activations = 4 * parameters, 2 * 4096 * (7 * 32 + 3 * 64) * 4
    assert (kept.memory("cpu").held, kept.memory("cpu").loaded, kept.memory("cpu").scoring) == (weights, 0, activations)
    assert (fleeting.memory("cpu").held, fleeting.memory("cpu").scoring) == (0, weights + activations)
    assert kept.memory("cuda:0").held == 0
    first, second = kept.score(GROUPS).total, fleeting.score(GROUPS).total
    assert torch.equal(first, second) and torch.equal(first, fleeting.score(GROUPS).total)
    assert kept.memory("cpu").loaded == weights
    assert fleeting.models["model"]._model is None
    kept.close()
    assert kept.memory("cpu").loaded == 0 and torch.equal(kept.score(GROUPS).total, first)


def test_a_completion_that_is_too_long_is_unscorable_and_the_others_are_not(place: Path) -> None:
    found = scorer(place).score([group("2*4?", "8", "9" * 300)])
    assert found.total[0, 1].isnan() and not found.total[0, 0].isnan()
    assert "the reward model" in found.failures[0].reason and "has 256" in found.failures[0].reason


def test_what_a_recipe_may_say() -> None:
    with pytest.raises(ValidationError, match="it needs the parameter 'path'"):
        RewardFunctionSettings(function="model")
    with pytest.raises(ValidationError, match=r"it has no parameter 'ouput'\. Did you mean 'output'"):
        RewardFunctionSettings(function="model", parameters={"path": "x", "ouput": "logit"})
    with pytest.raises(ValidationError, match="output: Input should be 'logit' or 'probability', got 'log'"):
        RewardFunctionSettings(function="model", parameters={"path": "x", "output": "log"})
    with pytest.raises(ValidationError, match="it has no parameter 'output'"):
        StepSettings(function="model", parameters={"path": "x", "output": "logit"})
    with pytest.raises(ValidationError, match="takes no parameters"):
        StepSettings(parameters={"path": "x"})
    with pytest.raises(ValidationError, match=r"unknown reward function 'modle'\. Did you mean 'model'"):
        RewardFunctionSettings(function="modle")


def test_what_cannot_be_used_is_told_before_anything_is_loaded(place: Path) -> None:
    with pytest.raises(RewardError, match=r"Reward function 'model', path: No model 'nowhere'.*\n.*sharpen train-reward-model"):
        scorer(place, path="nowhere")
    with pytest.raises(RewardError, match="is no reward model: its architecture is LlamaForCausalLM"):
        scorer(place, path="causal")
    steps = StepSettings(function="model", parameters={"path": "outcome"})
    with pytest.raises(RewardError, match="of kind outcome, which gives one number for a completion; one of kind process is needed"):
        steps.load(place)


def test_weights_that_vanish_stop_the_run_and_not_one_completion(place: Path, tmp_path: Path) -> None:
    model = reward_model.load(str(place / "outcome"), device="cpu")
    folder = model.save(tmp_path / "vanishing")
    reward = OutcomeReward(OutcomeSettings(path=str(folder)))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(RewardError, match="Reward function 'model':"):
        reward(prompts=["a"], completions=["b"], prompt_ids=[[IM_START]], completion_ids=[[IM_END]], finish_reason=["stop"])
