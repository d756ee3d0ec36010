"""The same batch and the same weights through TRL's losses and ours: do loss and gradient agree?

    pip install -e '.[trl]' && python benchmarks/cross_check_trl.py

A random Llama of two layers in float32; eight completions of different lengths in two groups; rewards go through TRL's formula of the
advantages and through ours (sample deviation, 1e-4). TRL's trainers are made as a user makes them, and their own `compute_loss` is called.
Off-policy: the old policy and the reference are the weights with noise. Set equal:

- clip bounds, β, `scale_rewards`, Dr.GRPO's constant length, DAPO's number of tokens (of this batch), GSPO's sequence-level ratio;
- the KL term without an importance weight, as DeepSeekMath Eq. 3; TRL multiplies by one unless told otherwise;
- SFT's mean over tokens; ours is DeepSeekMath's mean over each completion unless a recipe says `token-mean`;
- DPO's sum of log-ratios.

The table shows relative differences; above 1e-4 the exit code is 1.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
import tempfile
from typing import Any

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from sharpen.methods import DAPO, DPO, DR_GRPO, GRPO, GSPO, KL, SFT, Method, Surrogate
from sharpen.models.policy import LanguagePolicy
from sharpen.ops.advantages import group_norm
from sharpen.ops.reduce import token_weights
from sharpen.records import TrainingBatch, pad

VOCABULARY, LENGTH, TOLERANCE = 40, 12, 1e-4
PROMPTS = [(5, 6, 7), (8, 9, 10, 11)]
REWARDS = torch.tensor([[1.0, 0.0, 0.3, 0.0], [0.0, 1.0, 1.0, 0.2]], dtype=torch.float64)


def model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, initializer_range=0.3, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w3"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    return PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="w1", eos_token="w2", pad_token="w0", unk_token="w3", chat_template=template
    )


def noisy(weights: LlamaForCausalLM, size: float, seed: int) -> LlamaForCausalLM:
    other, generator = copy.deepcopy(weights), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return other


def batch_of(weights: LlamaForCausalLM, old: LlamaForCausalLM, ref: LlamaForCausalLM) -> TrainingBatch:
    """Eight completions, their rewards, and the log-probabilities of the old policy and the reference."""
    generator = torch.Generator().manual_seed(7)
    lengths = [3, 7, 5, LENGTH, 4, 6, 9, 2]
    completions = [(*torch.randint(4, VOCABULARY, (n - 1,), generator=generator).tolist(), 2) for n in lengths]
    mask = pad([(1,) * n for n in lengths], dtype=torch.int64).bool()
    zeros = torch.zeros(mask.shape)
    batch = TrainingBatch(
        prompts=tuple(PROMPTS),
        group_index=torch.arange(2).repeat_interleave(4),
        tokens=pad(completions, dtype=torch.int64),
        loss_mask=mask,
        advantages=zeros,
        weights=zeros,
        sampling_logprobs=zeros,
        rewards=REWARDS,
        place=torch.arange(8),
    )
    with torch.no_grad():
        old_logprobs, ref_logprobs = (LanguagePolicy(m).logprobs(batch, temperature=1.0).logprobs for m in (old, ref))
    return dataclasses.replace(batch, old_logprobs=old_logprobs, ref_logprobs=ref_logprobs)


def ours(weights: LlamaForCausalLM, method: Method, batch: TrainingBatch) -> tuple[float, torch.Tensor]:
    """Loss and gradient by sharpen."""
    weights = copy.deepcopy(weights)
    batch = method.with_advantages(batch)
    batch = dataclasses.replace(batch, weights=token_weights(batch.loss_mask, method.reduction, constant_length=LENGTH))
    loss = (batch.weights * method.loss(LanguagePolicy(weights).logprobs(batch, temperature=1.0).logprobs, batch).values).sum()
    loss.backward()
    return loss.item(), gradient(weights)


def gradient(weights: LlamaForCausalLM) -> torch.Tensor:
    return torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in weights.parameters()])


def rows(batch: TrainingBatch, order: list[int] | None = None) -> dict[str, torch.Tensor]:
    """The batch as TRL takes it: prompts padded on the left, completions on the right."""
    order = list(range(8)) if order is None else order
    width = max(len(p) for p in PROMPTS)
    prompts = [PROMPTS[int(batch.group_index[i])] for i in order]
    return {
        "prompt_ids": torch.tensor([(0,) * (width - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([(0,) * (width - len(p)) + (1,) * len(p) for p in prompts]),
        "completion_ids": batch.tokens[order],
        "completion_mask": batch.loss_mask[order].long(),
    }


def settings(folder: str, **given: Any) -> dict[str, Any]:
    return {
        "output_dir": folder, "per_device_train_batch_size": 8, "report_to": "none", "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True, **given,
    }  # fmt: skip


def trl_grpo(weights: LlamaForCausalLM, batch: TrainingBatch, folder: str, **given: Any) -> tuple[float, torch.Tensor]:
    """Loss and gradient by TRL's GRPOTrainer."""
    weights.save_pretrained(folder)  # TRL loads the reference anew from where the model came from
    weights = copy.deepcopy(weights)
    weights.config._name_or_path = folder
    config = GRPOConfig(**settings(folder, num_generations=4, max_completion_length=LENGTH, **given))
    prompts = Dataset.from_list([{"prompt": "w5 w6"}] * 8)
    trainer = GRPOTrainer(
        model=weights, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=config, train_dataset=prompts,
        processing_class=tokenizer(),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    advantages = REWARDS.float() - REWARDS.float().mean(dim=1, keepdim=True)  # as TRL's _generate_and_score_completions
    if given.get("scale_rewards", "group") == "group":
        advantages = advantages / (REWARDS.float().std(dim=1, keepdim=True) + 1e-4)
        torch.testing.assert_close(advantages, group_norm(REWARDS).float())
    inputs = rows(batch) | {
        "advantages": advantages.flatten(),
        "old_per_token_logps": batch.old_logprobs,
        "ref_per_token_logps": batch.ref_logprobs,
        "num_items_in_batch": batch.loss_mask.sum(),
    }
    weights.eval()
    loss = trainer.compute_loss(weights, inputs)
    loss.backward()
    return loss.item(), gradient(weights)


def trl_dpo(weights: LlamaForCausalLM, ref: LlamaForCausalLM, batch: TrainingBatch, folder: str) -> tuple[float, torch.Tensor]:
    """Loss and gradient by TRL's DPOTrainer, over the pairs that ours forms."""
    weights = copy.deepcopy(weights)
    data = Dataset.from_list([{"prompt": "w5 w6", "chosen": " w7", "rejected": " w8"}] * 8)
    config = DPOConfig(**settings(folder, beta=0.1))
    trainer = DPOTrainer(model=weights, ref_model=copy.deepcopy(ref), args=config, train_dataset=data, processing_class=tokenizer())
    paired = DPO.with_advantages(batch)
    assert paired.place is not None
    order = paired.place.tolist()
    loss = trainer.compute_loss(weights.eval(), joined(batch, order[::2] + order[1::2]))
    loss.backward()
    return loss.item(), gradient(weights)


def trl_sft(weights: LlamaForCausalLM, batch: TrainingBatch, folder: str) -> tuple[float, torch.Tensor]:
    """Loss and gradient by TRL's SFTTrainer, over the completions alone."""
    weights = copy.deepcopy(weights)
    config = SFTConfig(**settings(folder, max_length=32))
    trainer = SFTTrainer(
        model=weights, args=config, train_dataset=Dataset.from_list([{"text": "w5 w6 w7"}] * 8), processing_class=tokenizer()
    )
    inputs = joined(batch, list(range(8)))
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs.pop("completion_mask") == 0, -100)
    loss = trainer.compute_loss(weights.eval(), inputs)
    loss.backward()
    return loss.item(), gradient(weights)


def joined(batch: TrainingBatch, order: list[int]) -> dict[str, torch.Tensor]:
    """Prompt and completion as one sequence, padded on the right."""
    sequences = [(PROMPTS[int(batch.group_index[i])], tuple(batch.tokens[i][batch.loss_mask[i]].tolist())) for i in order]
    whole = [prompt + completion for prompt, completion in sequences]
    return {
        "input_ids": pad(whole, dtype=torch.int64),
        "attention_mask": pad([(1,) * len(one) for one in whole], dtype=torch.int64),
        "completion_mask": pad([(0,) * len(prompt) + (1,) * len(completion) for prompt, completion in sequences], dtype=torch.int64),
    }


def main() -> int:
    weights = model()
    old, ref = noisy(weights, 0.01, 1), noisy(weights, 0.03, 2)
    batch = batch_of(weights, old, ref)
    clip: dict[str, Any] = {"epsilon": 0.2, "epsilon_high": 0.2}
    narrow: dict[str, Any] = {"epsilon": 0.05, "epsilon_high": 0.05, "importance_sampling_level": "sequence"}
    sequence = dataclasses.replace(GSPO, surrogate=Surrogate(kind="clipped_sequence", clip_low=0.05, clip_high=0.05))
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "grpo": (
                ours(weights, dataclasses.replace(GRPO, kl=KL(placement="in_loss", estimator="k3", coef=0.04)), batch),
                trl_grpo(weights, batch, folder, loss_type="grpo", beta=0.04, use_bias_correction_kl=False, **clip),
            ),
            "dr_grpo": (
                ours(weights, DR_GRPO, batch),
                trl_grpo(weights, batch, folder, loss_type="dr_grpo", scale_rewards="none", beta=0.0, **clip),
            ),
            "dapo": (
                ours(weights, DAPO, batch),
                trl_grpo(weights, batch, folder, loss_type="dapo", beta=0.0, epsilon=0.2, epsilon_high=0.28),
            ),
            "gspo": (
                ours(weights, sequence, batch),
                trl_grpo(weights, batch, folder, loss_type="grpo", beta=0.0, **narrow),
            ),
            "dpo": (ours(weights, DPO, batch), trl_dpo(weights, ref, batch, folder)),
            "sft": (ours(weights, dataclasses.replace(SFT, reduction="token-mean"), batch), trl_sft(weights, batch, folder)),
        }
    table = Table(title="TRL and sharpen, float32", title_justify="left")
    for heading in ("method", "loss, sharpen", "loss, TRL", "loss, relative difference", "gradient, relative difference"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    worst = 0.0
    for name, ((loss, grad), (their_loss, their_grad)) in found.items():
        by_loss = abs(loss - their_loss) / abs(their_loss)
        by_gradient = float((grad - their_grad).norm() / their_grad.norm())
        worst = max(worst, by_loss, by_gradient)
        table.add_row(name, f"{loss:.7f}", f"{their_loss:.7f}", f"{by_loss:.1e}", f"{by_gradient:.1e}")
    console = Console()
    console.print(table)
    console.print(f"largest: {worst:.1e}, allowed: {TOLERANCE:.0e}")
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
