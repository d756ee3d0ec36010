"""Reward models: what is read where, whatever the batch; their folders, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaForSequenceClassification,
)

from families import FAMILIES, family
from sharpen.errors import ModelError
from sharpen.models import reward_folder, reward_model
from sharpen.models.reward_model import Reading, RewardModel
from tiny import IM_END, PAD, build_tiny, tiny_tokenizer

PROMPTS = [(7, 8, 9), (7, 8, 9), (10, 11), (7, 8, 9, 12, 13), (10, 11)]
COMPLETIONS = [(20, 21, IM_END), (22, 23, 24, 25, 26, 27, IM_END), (28,), (29, 30, 31, 32, 33, 34, 35, 36, 37, 38), (PAD, IM_END, PAD)]


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("causal") / "model")


def with_head(model: RewardModel) -> RewardModel:
    head = model.module.score
    with torch.no_grad():
        head.weight.copy_(torch.linspace(-1, 1, head.weight.numel(), dtype=head.weight.dtype).reshape(head.weight.shape))
        if head.bias is not None:
            head.bias.copy_(torch.linspace(0.25, -0.5, head.bias.numel())[: head.bias.numel()])
    return model


@pytest.fixture
def outcome(causal: Path) -> RewardModel:
    return with_head(reward_model.new(str(causal), "outcome", dtype="float32", device="cpu"))


@pytest.fixture
def process(causal: Path) -> RewardModel:
    return with_head(reward_model.new(str(causal), "process", dtype="float32", device="cpu"))


def alone(model: RewardModel) -> list[float]:
    return [model.score([prompt], [completion])[0] for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True)]


def test_training_begins_at_a_logit_of_0(causal: Path) -> None:
    fresh = reward_model.new(str(causal), "outcome", dtype="float32", device="cpu")
    assert fresh.score(PROMPTS, COMPLETIONS) == [0.0] * 5
    steps = reward_model.new(str(causal), "process", dtype="float32", device="cpu").score_steps(PROMPTS[:1], COMPLETIONS[:1], [[0, 2]])
    assert steps == [[0.5, 0.5]]
    assert fresh.module.config.num_labels == 1


def test_a_logit_is_the_heads_of_the_state_that_the_last_token_left(outcome: RewardModel) -> None:
    hidden = outcome.module.model(input_ids=torch.tensor([[10, 11, 28]])).last_hidden_state[0, 2]
    expected = float((hidden @ torch.linspace(-1, 1, 32)).detach())
    assert outcome.score([(10, 11)], [(28,)])[0] == pytest.approx(expected, abs=1e-5)
    # an empty completion: the prompt's last token; an empty prompt: the completion's
    hidden = outcome.module.model(input_ids=torch.tensor([[10, 11]])).last_hidden_state[0, 1]
    assert outcome.score([(10, 11), ()], [(), (10, 11)]) == pytest.approx(
        [float((hidden @ torch.linspace(-1, 1, 32)).detach())] * 2, abs=1e-5
    )


def test_transformers_gives_the_same_logit(outcome: RewardModel, tmp_path: Path) -> None:
    outcome.save(tmp_path / "saved")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", dtype="float32").eval()
    for prompt, completion, mine in zip(PROMPTS[:4], COMPLETIONS[:4], outcome.score(PROMPTS[:4], COMPLETIONS[:4]), strict=True):
        assert float(theirs(input_ids=torch.tensor([prompt + completion])).logits) == pytest.approx(mine, abs=1e-5)


@pytest.mark.parametrize("budget", [1, 12, 20, 4096])
def test_a_logit_does_not_depend_on_the_batch(outcome: RewardModel, budget: int) -> None:
    expected = alone(outcome)
    outcome.batch_tokens = budget
    assert outcome.score(PROMPTS, COMPLETIONS) == pytest.approx(expected, abs=1e-5)
    backwards = outcome.score(PROMPTS[::-1], COMPLETIONS[::-1])
    assert backwards == pytest.approx(expected[::-1], abs=1e-5)
    assert len({round(value, 4) for value in expected}) == 5


@pytest.mark.parametrize("name", list(FAMILIES))
def test_every_family_reads_as_transformers_does(name: str) -> None:
    body = family(name).get_decoder()
    config = body.config
    config.num_labels, config.pad_token_id = 1, 0
    module = AutoModelForSequenceClassification.from_config(config).eval()
    getattr(module, module.base_model_prefix).load_state_dict(body.state_dict())
    model = RewardModel(module, None, kind="outcome", name=name)
    assert model._states is not None and model._states.share_prompt
    for prompt, completion, mine in zip(PROMPTS[:4], COMPLETIONS[:4], model.score(PROMPTS[:4], COMPLETIONS[:4]), strict=True):
        assert float(module(input_ids=torch.tensor([prompt + completion])).logits) == pytest.approx(mine, abs=1e-4)


def gpt2() -> RewardModel:
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, num_labels=1, pad_token_id=0, initializer_range=0.2)
    return RewardModel(GPT2ForSequenceClassification(config).eval(), None, kind="outcome", name="gpt2")


def test_a_family_without_a_forward_pass_of_ours_reads_padded_rows() -> None:
    model = gpt2()
    assert model._states is not None and not model._states.share_prompt
    assert model.score(PROMPTS, COMPLETIONS) == pytest.approx(alone(model), abs=1e-5)
    theirs = float(model.module(input_ids=torch.tensor([PROMPTS[0] + COMPLETIONS[0]])).logits)
    assert model.score(PROMPTS, COMPLETIONS)[0] == pytest.approx(theirs, abs=1e-5)


def test_an_encoder_is_read_by_its_own_forward_pass() -> None:
    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64,
        num_labels=2, initializer_range=0.3,
    )  # fmt: skip
    model = RewardModel(BertForSequenceClassification(config).eval(), None, kind="outcome", name="bert")
    assert not model.reads_last_token
    assert model.score(PROMPTS, COMPLETIONS) == pytest.approx(alone(model), abs=1e-5)
    two = model.module(input_ids=torch.tensor([PROMPTS[1] + COMPLETIONS[1]])).logits[0]
    assert model.score(PROMPTS, COMPLETIONS)[1] == pytest.approx(float(two[1] - two[0]), abs=1e-5)


def test_two_labels_are_a_difference_of_logits(causal: Path, outcome: RewardModel, tmp_path: Path) -> None:
    module = AutoModelForSequenceClassification.from_pretrained(causal, num_labels=2, dtype="float32")
    with torch.no_grad():
        module.score.weight[0].fill_(0.5)
        module.score.weight[1].copy_(torch.linspace(-1, 1, 32) + 0.5)
    module.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    loaded = reward_model.load(str(tmp_path), dtype="float32", device="cpu")
    assert loaded.score(PROMPTS, COMPLETIONS) == pytest.approx(outcome.score(PROMPTS, COMPLETIONS), abs=1e-4)


def test_steps_are_read_at_their_ends(process: RewardModel) -> None:
    ends = [[0, 2], [1, 4, 6], [0], [9], []]
    got = process.score_steps(PROMPTS, COMPLETIONS, ends)
    assert [len(one) for one in got] == [2, 3, 1, 1, 0]
    hidden = process.module.model(input_ids=torch.tensor([(7, 8, 9, 22, 23, 24, 25, 26, 27, IM_END)])).last_hidden_state[0]
    logits = hidden @ torch.linspace(-1, 1, 32) + 0.25
    # the prompt has three tokens: ends 1, 4 and 6 are positions 4, 7 and 9
    assert got[1] == pytest.approx([1 / (1 + math.exp(-float(logits[i]))) for i in (4, 7, 9)], abs=1e-5)
    process.batch_tokens = 5
    assert process.score_steps(PROMPTS, COMPLETIONS, ends)[1] == pytest.approx(got[1], abs=1e-5)


def test_a_step_reads_nothing_that_comes_after_it(process: RewardModel) -> None:
    whole = process.score_steps([(7, 8)], [(20, 21, 22, 23)], [[1, 3]])[0][0]
    assert process.score_steps([(7, 8)], [(20, 21)], [[1]])[0][0] == pytest.approx(whole, abs=1e-6)


def test_saving_and_loading_gives_the_same_bits(process: RewardModel, outcome: RewardModel, tmp_path: Path) -> None:
    outcome.about |= {"figures": {"accuracy": 0.75}}
    folder = outcome.save(tmp_path / "outcome")
    loaded = reward_model.load(str(folder), kind="outcome", dtype="float32", device="cpu")
    assert loaded.score(PROMPTS, COMPLETIONS) == outcome.score(PROMPTS, COMPLETIONS)
    assert loaded.about["figures"] == {"accuracy": 0.75} and loaded.about["kind"] == "outcome"
    assert json.loads((folder / "reward_model.json").read_text())["base"] == outcome.name
    outcome.save(folder)  # over the old one
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outcome"]
    steps = process.save(tmp_path / "process")
    assert type(AutoModelForTokenClassification.from_pretrained(steps)).__name__ == "LlamaForTokenClassification"
    again = reward_model.load(str(steps), dtype="float32", device="cpu")
    assert again.score_steps(PROMPTS, COMPLETIONS, [[0]] * 5) == process.score_steps(PROMPTS, COMPLETIONS, [[0]] * 5)


def test_training_goes_on_from_a_reward_model(outcome: RewardModel, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path / "first")
    again = reward_model.new(str(folder), "outcome", dtype="float32", device="cpu")
    assert again.score(PROMPTS, COMPLETIONS) == outcome.score(PROMPTS, COMPLETIONS)
    other = reward_model.new(str(folder), "process", dtype="float32", device="cpu")  # the body alone
    assert other.score_steps(PROMPTS[:1], COMPLETIONS[:1], [[1]]) == [[0.5]]


def test_the_random_state_stays_as_it_was(causal: Path) -> None:
    torch.manual_seed(9)
    before = torch.get_rng_state()
    reward_model.new(str(causal), "outcome", dtype="float32", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_share_prompts_and_keep_to_the_budget(outcome: RewardModel) -> None:
    sequences = [Reading(p, c, (0,)) for p, c in zip(PROMPTS, COMPLETIONS, strict=True)]
    # one prompt of 3 with completions of 3 + 1 and 7 + 1: 15 positions; then 2 + (1 + 1) + (3 + 1): 8; then 5 + 10 + 1: 16
    assert [sorted(part) for part in outcome.batches(sequences, 16)] == [[0, 1], [2, 4], [3]]
    assert [sorted(part) for part in outcome.batches(sequences, 1)] == [[0], [1], [2], [4], [3]]
    assert list(outcome.batches(sequences[:4], 16, together=2)) == [[0, 1], [2, 3]]
    # padded rows of 3 + 1, 5 + 1, 6 + 1, 10 + 1 and 15 + 1: three of 7 are 21, and with the next they would be four of 11
    assert list(gpt2().batches(sequences, 21)) == [[2, 4, 0], [1], [3]]
    assert list(gpt2().batches(sequences, 20)) == [[2, 4], [0], [1], [3]]


def test_what_is_no_reward_model_is_refused(causal: Path, outcome: RewardModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is no reward model: its architecture is LlamaForCausalLM.*\n.*sharpen train-reward-model"):
        reward_model.load(str(causal))
    module = LlamaForSequenceClassification.from_pretrained(causal, num_labels=3)
    module.save_pretrained(tmp_path / "three")
    tiny_tokenizer().save_pretrained(tmp_path / "three")
    with pytest.raises(ModelError, match="tells 3 labels apart"):
        reward_model.load(str(tmp_path / "three"))
    folder = outcome.save(tmp_path / "outcome")
    with pytest.raises(ModelError, match="of kind outcome, which gives one number for a completion; one of kind process is needed"):
        reward_model.load(str(folder), kind="process")
    with pytest.raises(ModelError, match="of kind outcome"):
        outcome.score_steps([(7,)], [(8,)], [[0]])
    (folder / "reward_model.json").write_text("{")
    with pytest.raises(ModelError, match=r"reward_model\.json is not JSON"):
        reward_model.load(str(folder))


def test_weights_that_are_pickles_are_refused(outcome: RewardModel, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path / "pickled")
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"pytorch_model\.bin only, a pickle file"):
        reward_model.load(str(folder))


def test_a_head_that_is_missing_is_told(causal: Path, outcome: RewardModel, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = outcome.save(tmp_path / "headless")
    tensors = load_file(folder / "model.safetensors")
    del tensors["score.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 are missing from .*, such as score\.weight"):
        reward_model.load(str(folder))


def test_too_long_and_empty_texts_are_told(outcome: RewardModel) -> None:
    with pytest.raises(ModelError, match=r"need 257 positions, and the reward model .* has 256"):
        outcome.score([(7,) * 200], [(8,) * 57])
    with pytest.raises(ModelError, match="without any token"):
        outcome.score([()], [()])
    outcome.close()
    with pytest.raises(ModelError, match="has been closed"):
        outcome.score([(7,)], [(8,)])


def test_looking_reads_no_weights(outcome: RewardModel, tmp_path: Path) -> None:
    folder = outcome.save(tmp_path / "looked")
    found = reward_folder.look(str(folder))
    assert found.kind == "outcome" and found.about["base"] == outcome.name
    assert found.parameters == sum(p.numel() for p in outcome.module.parameters())


def test_vocabularies_are_told_apart() -> None:
    one, other = tiny_tokenizer(), tiny_tokenizer()
    assert reward_model.vocabulary_digest(one) == reward_model.vocabulary_digest(other)
    other.add_tokens(["<more>"])
    assert reward_model.vocabulary_digest(one) != reward_model.vocabulary_digest(other)
