"""A language model as a policy: log-probabilities of completions, with the prompt read once for its whole group.

Axes: B sequences, T tokens of a completion, R packed rows, L tokens of a row, N completion tokens of all sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from sharpen.ops import logprobs as ops
from sharpen.records import TrainingBatch


class PolicyOutput(NamedTuple):
    """Both [B, T] and 0 where masked out: log π_θ of the tokens in nats, with gradient, and the entropy in nats, without."""

    logprobs: Tensor
    entropy: Tensor


class Reader(Protocol):
    """What reads a batch: a policy or a value model."""

    @property
    def module(self) -> nn.Module:
        """What holds the parameters."""
        ...

    def cost(self, batch: TrainingBatch) -> list[int]:
        """The token positions that each sequence of the batch adds to a forward pass, B of them; prompts are counted apart."""
        ...


class Policy(Reader, Protocol):
    """What the trainer needs of a policy; the candidate policy and language models are two of them."""

    def logprobs(self, batch: TrainingBatch, *, temperature: float) -> PolicyOutput:
        """Log-probabilities and entropies of the batch's completion tokens at the temperature that sampled them."""
        ...


class Packed(NamedTuple):
    """Sequences laid out in rows: `[prompt | o_1 | o_2 | ...]` where the model can share a prompt, else `[prompt | o_i]`.

    A completion's last token is predicted but predicts nothing, so it is not fed.

    Attributes:
        tokens: int64 [R, L], right-padded with 0.
        positions: int64 [R, L], as if each completion alone followed its prompt.
        segments: int64 [R, L], 0 for the prompt, 1.. for completions, -1 for padding.
        sources: int64 [N], the flat index into [R · L] of the position that predicts each completion token.
        targets: int64 [N], those tokens, sequence by sequence.
    """

    tokens: Tensor
    positions: Tensor
    segments: Tensor
    sources: Tensor
    targets: Tensor

    def tree_mask(self) -> Tensor:
        """Bool [R, 1, L, L]: a token sees its prompt, its own completion's earlier tokens and itself; padding sees itself only."""
        q, k = self.segments[:, :, None], self.segments[:, None, :]
        order = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        earlier = order[:, None] >= order[None, :]
        return (((q == k) | ((k == 0) & (q > 0))) & earlier & (q >= 0) | torch.eye(len(order), dtype=torch.bool, device=q.device))[:, None]


def pack(batch: TrainingBatch, *, share_prompt: bool) -> Packed:
    """Lay the batch's sequences out in rows, one a group (`share_prompt`) or one a sequence, padded to a multiple of 8."""
    lengths = batch.lengths.tolist()
    rows: dict[int, list[int]] = {}
    for i, group in enumerate(batch.group_index.tolist()):
        rows.setdefault(group if share_prompt else i, []).append(i)
    groups = batch.group_index.tolist()
    completions = [row[:n] for row, n in zip(batch.tokens.tolist(), lengths, strict=True)]
    laid: list[tuple[list[int], list[int], list[int]]] = []
    starts: dict[int, tuple[int, int, int]] = {}  # sequence → row, position of its prompt's last token, offset of its own first
    for row, members in enumerate(rows.values()):
        tokens = list(batch.prompts[groups[members[0]]])
        prompt = len(tokens)
        positions, segments = list(range(prompt)), [0] * prompt
        for segment, i in enumerate(members, start=1):
            fed = completions[i][:-1]
            starts[i] = (row, prompt - 1, len(tokens))
            tokens += fed
            positions += range(prompt, prompt + len(fed))
            segments += [segment] * len(fed)
        laid.append((tokens, positions, segments))
    width = -(-max(len(tokens) for tokens, _, _ in laid) // 8) * 8

    def stack(column: int, fill: int) -> Tensor:
        return torch.tensor([row[column] + [fill] * (width - len(row[column])) for row in laid], dtype=torch.int64)

    sources = []
    for i, n in enumerate(lengths):
        row, last, own = starts[i]
        sources += [row * width + (last if t == 0 else own + t - 1) for t in range(n)]
    targets = [token for completion in completions for token in completion]
    return Packed(
        stack(0, 0), stack(1, 0), stack(2, -1), torch.tensor(sources, dtype=torch.int64), torch.tensor(targets, dtype=torch.int64)
    )


class LanguagePolicy:
    """A Hugging Face causal language model as a policy.

    Args:
        module: the model; its weights are used in place.
    """

    def __init__(self, module: Any) -> None:
        self.module: Any = module
        self.share_prompt = can_share_prompt(module)
        self._head = plain_head(module)

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Policy.cost`."""
        return positions(batch, share_prompt=self.share_prompt)

    def logprobs(self, batch: TrainingBatch, *, temperature: float) -> PolicyOutput:
        """See `Policy.logprobs`. Only completion positions go through the language-model head."""
        if self._head is not None:
            hidden, targets = hidden_states(self.module.get_decoder(), batch, share_prompt=self.share_prompt)
            chosen, entropy = ops.through_head(hidden, self._head, targets, temperature=temperature)
        else:
            inputs, packed = _inputs(self.module, batch, self.share_prompt)
            logits = self.module(**inputs).logits
            chosen, entropy = ops.from_logits(logits.flatten(0, 1)[packed.sources], packed.targets, temperature=temperature)
        return PolicyOutput(unpack(chosen, batch.loss_mask), unpack(entropy, batch.loss_mask))


def positions(batch: TrainingBatch, *, share_prompt: bool) -> list[int]:
    """The token positions that each sequence of the batch adds to a forward pass; see `Policy.cost`."""
    if share_prompt:
        return [max(1, n - 1) for n in batch.lengths.tolist()]
    groups = batch.group_index.tolist()
    return [len(batch.prompts[g]) + max(1, n - 1) for g, n in zip(groups, batch.lengths.tolist(), strict=True)]


def hidden_states(body: Any, batch: TrainingBatch, *, share_prompt: bool) -> tuple[Tensor, Tensor]:
    """The last hidden state of what each completion token continues, [N, H], and those tokens, int64 [N], sequence by sequence.

    Args:
        body: a Hugging Face decoder, without its language-model head.
        batch: N completion tokens in all.
        share_prompt: whether a group is one row under a tree mask.
    """
    inputs, packed = _inputs(body, batch, share_prompt)
    return body(**inputs).last_hidden_state.flatten(0, 1)[packed.sources], packed.targets


def _inputs(module: Any, batch: TrainingBatch, share_prompt: bool) -> tuple[dict[str, Any], Packed]:
    device = next(module.parameters()).device
    packed = Packed(*(tensor.to(device) for tensor in pack(batch, share_prompt=share_prompt)))
    mask = packed.tree_mask() if share_prompt else (packed.segments >= 0).long()
    return {"input_ids": packed.tokens, "position_ids": packed.positions, "use_cache": False, "attention_mask": mask}, packed


def unpack(values: Tensor, mask: Tensor) -> Tensor:
    """[N] values of the masked positions, sequence by sequence → [B, T], 0 elsewhere."""
    mask = mask.to(values.device)
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def can_share_prompt(module: Any) -> bool:
    """Whether the model takes a tree mask: full attention in every layer, by an implementation that reads four-dimensional masks."""
    config = getattr(module, "config", None)
    kinds: Sequence[str] = getattr(config, "layer_types", None) or ["full_attention"]
    windowed = getattr(config, "use_sliding_window", getattr(config, "sliding_window", None) is not None)
    return getattr(config, "_attn_implementation", None) in ("sdpa", "eager") and set(kinds) == {"full_attention"} and not windowed


def plain_head(module: Any) -> Tensor | None:
    """The language-model head's weight [V, H] when logits are exactly hidden @ weight.T, else None."""
    head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
    scaled = any(getattr(module.config, name, None) for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"))
    if type(head) is not nn.Linear or head.bias is not None or scaled or not hasattr(module, "get_decoder"):
        return None
    return head.weight
