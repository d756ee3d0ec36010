"""Choosing tokens by inverse distribution function."""

from __future__ import annotations

import math

import pytest
import torch

from sharpen.rollout.engine import Sampling
from sharpen.rollout.sampler import choose, uniforms

T1 = Sampling(max_new_tokens=1)


def logits(*probabilities: float) -> torch.Tensor:
    return torch.tensor([[math.log(p) if p else -math.inf for p in probabilities]])


@pytest.mark.parametrize(
    ("draw", "token"),
    [(0.0, 0), (0.19, 0), (0.21, 1), (0.69, 1), (0.71, 3), (0.99999994, 3)],  # cumulative 0.2, 0.7, 0.7, 1.0
)
def test_the_token_whose_share_holds_the_draw(draw: float, token: int) -> None:
    tokens, logprobs = choose(logits(0.2, 0.5, 0.0, 0.3), torch.tensor([draw]), T1)
    assert tokens.item() == token
    assert logprobs.item() == pytest.approx(math.log([0.2, 0.5, 0.0, 0.3][token]), abs=1e-6)


def test_temperature_divides_logits() -> None:
    # at T = 0.5: 0.2² , 0.8² → 0.04, 0.64 → 1/17, 16/17
    tokens, logprobs = choose(logits(0.2, 0.8), torch.tensor([0.06]), Sampling(max_new_tokens=1, temperature=0.5))
    assert tokens.item() == 1
    assert logprobs.item() == pytest.approx(math.log(16 / 17), abs=1e-6)


def test_greedy_takes_the_largest() -> None:
    tokens, _ = choose(logits(0.2, 0.5, 0.3), torch.tensor([0.99]), Sampling(max_new_tokens=1, temperature=0))
    assert tokens.item() == 1


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    # sorted 0.5, 0.3, 0.2: 0.5 < 0.6, so 0.3 joins; what is left is 5/8 and 3/8
    nucleus = Sampling(max_new_tokens=1, top_p=0.6)
    got = [choose(logits(0.2, 0.5, 0.3), torch.tensor([draw]), nucleus)[0].item() for draw in (0.0, 0.6, 0.63, 0.999)]
    assert got == [1, 1, 2, 2]


def test_frequencies() -> None:
    draws = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    tokens, _ = choose(logits(0.2, 0.5, 0.3).expand(40_000, 3), draws, T1)
    share = torch.bincount(tokens, minlength=3) / 40_000
    # five standard errors of a share of one half: 5 · √(0.25 / 40,000) = 0.0125
    torch.testing.assert_close(share, torch.tensor([0.2, 0.5, 0.3]), atol=0.0125, rtol=0)


def test_draws_depend_on_the_seed_alone() -> None:
    alone, together = uniforms([7], 5), uniforms([3, 7, 9], 5)
    assert torch.equal(alone[0], together[1])
    assert not torch.equal(together[0], together[1])
    assert bool((together >= 0).all() and (together < 1).all())


@pytest.mark.parametrize("vocabulary", [256, 1000, 1024])
def test_a_vocabulary_of_several_blocks_is_one_distribution(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(64, vocabulary, generator=generator)
    draws = torch.rand(64, generator=generator)
    tokens, logprobs = choose(logits, draws, Sampling(max_new_tokens=1))
    # by hand: the first entry whose running sum of probabilities is above the draw
    shares = logits.double().softmax(dim=1)
    assert tokens.tolist() == [int((row.cumsum(0) > draw).nonzero()[0]) for row, draw in zip(shares, draws.double(), strict=True)]
    torch.testing.assert_close(logprobs.double(), shares.log().gather(1, tokens[:, None]).squeeze(1), atol=1e-5, rtol=0)
