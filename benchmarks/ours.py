"""sharpen's side of the benchmarks: its engine and its learner, put together as a run puts them together."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from sharpen.methods import GRPO
from sharpen.models.loading import LoadedModel, load
from sharpen.models.policy import LanguagePolicy
from sharpen.records import Completion, Group, Problem, Scores, TrainingBatch
from sharpen.rollout.engine import Sampled, Sampling
from sharpen.rollout.torch_engine import TorchEngine
from sharpen.streams import derive
from sharpen.training import batches, memory
from sharpen.training.learner import Learner
from sharpen.training.optimiser import Optimiser

MAX_ROWS = 128  # completions decoded at once, a recipe's default


def load_model(args: Any) -> LoadedModel:
    """The model of the options, with their threads set."""
    torch.set_num_threads(args.threads)
    return load(args.model, dtype=args.dtype, device=args.device)


def engine_of(loaded: LoadedModel, *, max_rows: int = MAX_ROWS) -> TorchEngine:
    """An engine that no token stops, so that every completion has exactly the length asked for."""
    return TorchEngine(loaded.model, (), max_rows=max_rows)


def sample(engine: TorchEngine, prompts: Sequence[tuple[int, ...]], group: int, new: int, *, step: int) -> list[list[Sampled]]:
    """A group of completions for each prompt, other ones for each step."""
    seeds = [[derive(0, "benchmark", step, p, i) for i in range(group)] for p in range(len(prompts))]
    sampled = engine.sample(prompts, seeds, Sampling(max_new_tokens=new))
    lengths = {len(one.tokens) for members in sampled for one in members}
    assert lengths == {new}, f"completions of {new} tokens were asked for, and have {sorted(lengths)}"
    return sampled


def made_up(prompts: Sequence[tuple[int, ...]], group: int, new: int, vocabulary: int) -> tuple[list[list[Sampled]], list[list[float]]]:
    """Random completions and rewards, the same whoever asks."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, (len(prompts), group, new), generator=generator).tolist()
    rewards: list[list[float]] = torch.rand(len(prompts), group, generator=generator).tolist()
    return [[Sampled(tuple(one), (float("nan"),) * new, "length") for one in members] for members in tokens], rewards


def batch_of(prompts: Sequence[tuple[int, ...]], sampled: Sequence[Sequence[Sampled]], rewards: Sequence[Sequence[float]]) -> TrainingBatch:
    """The batch that a step of training makes of its completions."""
    groups = [
        Group(
            id=f"0/{p}/0",
            problem=Problem(id=str(p), prompt="", answer=""),
            prompt_tokens=prompt,
            completions=tuple(Completion(tokens=s.tokens, sampling_logprobs=s.logprobs, text="", finish_reason="length") for s in members),
        )
        for p, (prompt, members) in enumerate(zip(prompts, sampled, strict=True))
    ]
    total = torch.tensor(rewards, dtype=torch.float64)
    scores = Scores(total=total, parts={}, correct=torch.zeros_like(total).bool(), answers=((None,) * total.shape[1],) * len(groups))
    return batches.build(groups, scores)


def learner_of(loaded: LoadedModel, *, beta: float, learning_rate: float, sequence: int, token_budget: int = 0) -> Learner:
    """GRPO with a frozen reference.

    Args:
        loaded: what is trained.
        beta: of the KL term; 0 leaves the reference out.
        learning_rate: of AdamW.
        sequence: prompt and completion at their longest, in tokens.
        token_budget: positions of one micro-batch; 0 lets sharpen choose, as a run does.
    """
    policy = LanguagePolicy(loaded.model)
    method = dataclasses.replace(GRPO, kl=dataclasses.replace(GRPO.kl, coef=beta))
    if not token_budget:
        token_budget = memory.choose_budget(
            policy, temperature=1.0, needs_reference=method.needs_reference, rows=MAX_ROWS, sequence_length=sequence
        )
    reference = LanguagePolicy(copy.deepcopy(loaded.model).requires_grad_(False)) if method.needs_reference else None
    return Learner(
        policy=policy,
        reference=reference,
        method=method,
        optimiser=Optimiser(loaded.model.named_parameters(), learning_rate=learning_rate),
        temperature=1.0,
        token_budget=token_budget,
    )
