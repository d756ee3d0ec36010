"""The engine: stop ids, seeds, batches, and agreement with the trainer and with plain transformers."""

from __future__ import annotations

import pytest
import torch

from families import FAMILIES, family
from sharpen.models.policy import LanguagePolicy
from sharpen.records import Problem, TrainingBatch, pad
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.rollout.rollout import Rollout
from sharpen.rollout.torch_engine import TorchEngine, shared_homes
from tiny import END_OF_TEXT, IM_END, tiny_model, tiny_tokenizer

STOPS = (IM_END, END_OF_TEXT)
TEXTS = ["What is 2 + 2?", "Hi", "a longer prompt than the others, by far", "x"]


@pytest.fixture(scope="module")
def model():
    return tiny_model(len(tiny_tokenizer()))


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    tokenizer = tiny_tokenizer()
    return [tuple(tokenizer(text, add_special_tokens=False).input_ids) for text in TEXTS]


def flat(groups: list[list[Sampled]]) -> list[Sampled]:
    return [one for group in groups for one in group]


def batch_of(prompts: list[tuple[int, ...]], sampled: list[Sampled], group: int) -> TrainingBatch:
    mask = pad([(1,) * len(one.tokens) for one in sampled], dtype=torch.int64).bool()
    return TrainingBatch(
        prompts=tuple(prompts),
        group_index=torch.arange(len(prompts)).repeat_interleave(group),
        tokens=pad([one.tokens for one in sampled], dtype=torch.int64),
        loss_mask=mask,
        advantages=torch.zeros(mask.shape),
        weights=torch.zeros(mask.shape),
        sampling_logprobs=pad([one.logprobs for one in sampled], dtype=torch.float32),
    )


def test_the_same_prompt_alone_or_beside_others(model, prompts) -> None:
    engine = TorchEngine(model, STOPS)
    seeds = [[10 * p + i for i in range(4)] for p in range(4)]
    together = engine.sample(prompts, seeds, Sampling(max_new_tokens=24))
    for p in range(4):
        alone = engine.sample([prompts[p]], [seeds[p]], Sampling(max_new_tokens=24))[0]
        assert [one.tokens for one in alone] == [one.tokens for one in together[p]]
        assert [one.finish_reason for one in alone] == [one.finish_reason for one in together[p]]
        for a, b in zip(alone, together[p], strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


@pytest.mark.parametrize("max_rows", [1, 3, 5])
def test_the_cut_into_batches_changes_nothing(model, prompts, max_rows: int) -> None:
    seeds = [[10 * p + i for i in range(4)] for p in range(4)]
    whole = TorchEngine(model, STOPS).sample(prompts, seeds, Sampling(max_new_tokens=16))
    done: list[int] = []
    cut = TorchEngine(model, STOPS, max_rows=max_rows).sample(prompts, seeds, Sampling(max_new_tokens=16), done.append)
    assert [one.tokens for one in flat(cut)] == [one.tokens for one in flat(whole)]
    assert sum(done) == 16


def test_a_prompt_whose_rows_all_ended_still_serves_those_that_wait(model, prompts) -> None:
    # Two rows end at once; of the next two completions one is of their prompt and the other of a prompt that is read anew.
    seeds = [[10 * p + i for i in range(3)] for p in range(4)]
    few = TorchEngine(model, STOPS, max_rows=2).sample(prompts, seeds, Sampling(max_new_tokens=1))
    many = TorchEngine(model, STOPS, max_rows=16).sample(prompts, seeds, Sampling(max_new_tokens=1))
    assert [one.tokens for one in flat(few)] == [one.tokens for one in flat(many)]


def test_greedy_text_is_that_of_transformers(model, prompts) -> None:
    got = flat(TorchEngine(model, STOPS).sample(prompts, [[0]] * 4, Sampling(max_new_tokens=30, temperature=0)))
    for prompt, one in zip(prompts, got, strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False, eos_token_id=list(STOPS))
        assert list(one.tokens) == expected[0, len(prompt) :].tolist()


def test_every_stop_id_ends_a_completion(model, prompts) -> None:
    everything = TorchEngine(model, range(len(tiny_tokenizer()))).sample(prompts, [[1, 2]] * 4, Sampling(max_new_tokens=8))
    assert all(len(one.tokens) == 1 and one.finish_reason == "stop" for one in flat(everything))
    nothing = TorchEngine(model, ()).sample(prompts, [[1, 2]] * 4, Sampling(max_new_tokens=8))
    assert all(len(one.tokens) == 8 and one.finish_reason == "length" for one in flat(nothing))
    # a completion that stops is the beginning of the one that does not
    stopped = flat(TorchEngine(model, range(50)).sample(prompts, [[1, 2]] * 4, Sampling(max_new_tokens=8)))
    for short, long in zip(stopped, flat(nothing), strict=True):
        assert short.tokens == long.tokens[: len(short.tokens)]
        assert (short.tokens[-1] < 50) == (short.finish_reason == "stop")
        assert all(token >= 50 for token in short.tokens[:-1])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("share_prompt", [True, False])
def test_engine_and_trainer_give_the_same_logprobs(model, prompts, temperature: float, share_prompt: bool) -> None:
    groups = TorchEngine(model, STOPS).sample(
        prompts, [[10 * p + i for i in range(4)] for p in range(4)], Sampling(max_new_tokens=20, temperature=temperature)
    )
    sampled = flat(groups)
    batch = batch_of(prompts, sampled, 4)
    mask, theirs = batch.loss_mask, batch.sampling_logprobs
    policy = LanguagePolicy(model)
    assert policy.states.share_prompt
    policy.states.share_prompt = share_prompt
    ours = policy.logprobs(batch, temperature=temperature).logprobs
    assert ours.shape == mask.shape
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    assert bool((ours[~mask] == 0).all())


def test_groups_draw_apart_and_again_alike(model) -> None:
    tokenizer = tiny_tokenizer()
    problem = Problem(id="p", prompt="What?", answer="1")

    def sample(seed: int, **where: int):
        rollout = Rollout(
            engine=TorchEngine(model, STOPS),
            tokenizer=tokenizer,
            render=lambda p: tuple(tokenizer(p.prompt, add_special_tokens=False).input_ids),
            seed=seed,
        )
        return rollout.sample([problem, problem], 4, Sampling(max_new_tokens=12), **where)

    first, second = sample(42, step=3)
    assert (first.id, second.id) == ("3/0/0", "3/1/0")
    texts = [completion.text for completion in first.completions]
    assert len(set(texts)) == 4
    assert texts != [completion.text for completion in second.completions]
    assert texts == [completion.text for completion in sample(42, step=3)[0].completions]
    for other in (sample(43, step=3), sample(42, step=4), sample(42, step=3, attempt=1)):
        assert texts != [completion.text for completion in other[0].completions]


def test_a_stop_token_is_counted_and_not_shown(model) -> None:
    tokenizer = tiny_tokenizer()
    rollout = Rollout(engine=TorchEngine(model, range(len(tokenizer))), tokenizer=tokenizer, render=lambda p: (10, 11), seed=0)
    completion = rollout.sample([Problem(id="p", prompt="", answer="")], 1, Sampling(max_new_tokens=4))[0].completions[0]
    assert (len(completion.tokens), completion.text, completion.finish_reason) == (1, "", "stop")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_writes_what_transformers_writes_and_the_trainer_reads(name: str) -> None:
    model = family(name)
    generator = torch.Generator().manual_seed(3)
    prompts = [tuple(torch.randint(5, 99, (n,), generator=generator).tolist()) for n in (3, 11, 1, 7)]
    greedy = flat(TorchEngine(model, ()).sample(prompts, [[0]] * 4, Sampling(max_new_tokens=70, temperature=0)))
    for prompt, one in zip(prompts, greedy, strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=70, do_sample=False, eos_token_id=None, pad_token_id=0)
        assert list(one.tokens) == expected[0, len(prompt) :].tolist()
    seeds = [[10 * p + i for i in range(3)] for p in range(4)]
    engine = TorchEngine(model, range(10), max_rows=5)  # rows are handed on, and groups are cut
    sampled = flat(engine.sample(prompts, seeds, Sampling(max_new_tokens=30)))
    whole = flat(TorchEngine(model, range(10)).sample(prompts, seeds, Sampling(max_new_tokens=30)))
    assert [one.tokens for one in sampled] == [one.tokens for one in whole]
    batch = batch_of(prompts, sampled, 3)
    ours = LanguagePolicy(model).logprobs(batch, temperature=1.0).logprobs
    torch.testing.assert_close(ours, batch.sampling_logprobs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("max_rows", [3, 64])
def test_prompts_that_others_begin_with_are_not_read_twice(name: str, max_rows: int) -> None:
    model = family(name)
    generator = torch.Generator().manual_seed(5)
    long, other = (tuple(torch.randint(5, 99, (n,), generator=generator).tolist()) for n in (12, 7))
    prompts = [long[:4], other, long[:9], long, long[:4], (*long[:8], (long[8] + 1) % 99)]  # the last one leaves the others' way
    assert shared_homes(prompts) == [3, 1, 3, 3, 3, 5]
    seeds, sampling = [[10 * p + i for i in range(3)] for p in range(6)], Sampling(max_new_tokens=30)
    apart, together = (TorchEngine(model, range(10), max_rows=max_rows, share_prefixes=share) for share in (False, True))
    expected, got = (flat(engine.sample(prompts, seeds, sampling)) for engine in (apart, together))
    assert [one.tokens for one in got] == [one.tokens for one in expected]
    for a, b in zip(got, expected, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
    assert together.tokens_read < apart.tokens_read
    if max_rows == 64:  # with fewer rows a prompt may be read again for those that wait
        assert (together.tokens_read, apart.tokens_read) == (12 + 7 + 9, 4 + 7 + 9 + 12 + 4 + 9)


def test_new_weights_are_taken_over_from_every_optimiser(prompts) -> None:
    model = tiny_model(len(tiny_tokenizer()))
    engine, sampling = TorchEngine(model, STOPS), Sampling(max_new_tokens=12)
    before = engine.sample(prompts, [[1]] * 4, sampling)
    assert engine.sample(prompts, [[1]] * 4, sampling) == before
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)  # changes tensors without raising their version
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    after = engine.sample(prompts, [[1]] * 4, sampling)
    assert after != before
    assert after == TorchEngine(model, STOPS).sample(prompts, [[1]] * 4, sampling)


def test_other_models_are_sampled_by_generate_with_the_same_numbers(prompts) -> None:
    model = tiny_model(len(tiny_tokenizer()))
    seeds = [[10 * p + i for i in range(3)] for p in range(4)]
    expected = TorchEngine(model, STOPS).sample(prompts, seeds, Sampling(max_new_tokens=12))
    told: list[str] = []
    model.config.hidden_act = "relu"  # named so; the model goes on as it was built
    engine = TorchEngine(model, STOPS, max_rows=5, notice=told.append)
    got = engine.sample(prompts, seeds, Sampling(max_new_tokens=12))
    assert [one.tokens for one in flat(got)] == [one.tokens for one in flat(expected)]
    for a, b in zip(flat(got), flat(expected), strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
        assert a.finish_reason == b.finish_reason
    assert told == ["LlamaForCausalLM is sampled by the `generate` of transformers, which is slower: its activation is relu."]
