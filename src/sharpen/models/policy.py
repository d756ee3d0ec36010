"""A language model as a policy: log-probabilities of completions, with the prompt read once for its whole group.

Axes: B sequences, T tokens of a completion, N tokens of the stream that the model reads, M completion tokens of all sequences.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from sharpen.models import decoder
from sharpen.models.attention import Span
from sharpen.models.decoder import Decoder
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


class Stream(NamedTuple):
    """Groups one after another, `[prompt | o_1 | o_2 | ...]` each, without padding.

    A completion's last token is predicted but predicts nothing, so it is not in the stream.

    Attributes:
        tokens: int64 [N].
        positions: int64 [N], as if each completion alone followed its prompt.
        spans: where the groups are.
        sources: int64 [M], the place that predicts each completion token, sequence by sequence.
        targets: int64 [M], those tokens.
    """

    tokens: Tensor
    positions: Tensor
    spans: tuple[Span, ...]
    sources: Tensor
    targets: Tensor


def stream(batch: TrainingBatch, *, share_prompt: bool = True) -> Stream:
    """Lay the batch's sequences out behind their groups' prompts, or each behind a copy of its own."""
    lengths, groups = batch.lengths.tolist(), batch.group_index.tolist()
    members: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group if share_prompt else i, []).append(i)
    completions = [row[:n] for row, n in zip(batch.tokens.tolist(), lengths, strict=True)]
    tokens: list[int] = []
    positions: list[int] = []
    spans = []
    starts: dict[int, tuple[int, int]] = {}  # sequence → where its prompt's last token is, and its own first
    for rows in members.values():
        prompt = batch.prompts[groups[rows[0]]]
        span = Span(len(tokens), len(prompt), tuple(lengths[i] - 1 for i in rows))
        tokens += prompt
        positions += range(len(prompt))
        for i in rows:
            starts[i] = (span.start + span.prompt - 1, len(tokens))
            tokens += completions[i][:-1]
            positions += range(span.prompt, span.prompt + lengths[i] - 1)
        spans.append(span)
    sources = [last if t == 0 else own + t - 1 for i, n in enumerate(lengths) for last, own in [starts[i]] for t in range(n)]
    targets = [token for completion in completions for token in completion]
    return Stream(
        torch.tensor(tokens, dtype=torch.int64),
        torch.tensor(positions, dtype=torch.int64),
        tuple(spans),
        torch.tensor(sources, dtype=torch.int64),
        torch.tensor(targets, dtype=torch.int64),
    )


class HiddenStates:
    """A decoder that gives the hidden state before each completion token.

    Args:
        body: a Hugging Face decoder without its head. One of `decoder.FAMILIES` reads a stream in which groups share prompts; any other
            reads padded rows, one a sequence, by its own forward pass.
        recompute: keep little of the forward pass and compute it again in the backward pass (activation checkpointing).

    Attributes:
        share_prompt: whether a group's prompt is read once.
    """

    def __init__(self, body: Any, *, recompute: bool = False) -> None:
        self.body, self.recompute = body, recompute
        self.share_prompt = decoder.why_not(body) is None
        self.decoder = Decoder(body) if self.share_prompt else None
        if recompute and self.decoder is None:
            body.gradient_checkpointing_enable({"use_reentrant": False})

    def __call__(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """[M, C] and the tokens that follow, int64 [M], sequence by sequence."""
        device = next(self.body.parameters()).device
        laid = stream(batch, share_prompt=self.share_prompt)
        sources, targets = laid.sources.to(device), laid.targets.to(device)
        if self.share_prompt and self.decoder is not None:
            hidden = self.decoder.hidden(laid.tokens.to(device), laid.positions.to(device), laid.spans, recompute=self.recompute)
            return hidden[sources], targets
        tokens, mask, places = _rows(laid)
        out = self.body(input_ids=tokens.to(device), attention_mask=mask.long().to(device), use_cache=False)
        return out.last_hidden_state.flatten(0, 1)[places.to(device)[sources]], targets

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Reader.cost`."""
        own = [max(1, n - 1) for n in batch.lengths.tolist()]
        if self.share_prompt:
            return own
        return [len(batch.prompts[g]) + n for g, n in zip(batch.group_index.tolist(), own, strict=True)]


def _rows(laid: Stream) -> tuple[Tensor, Tensor, Tensor]:
    """The stream's groups as right-padded rows: tokens int64 [R, L], mask bool [R, L], and where each token went in [R · L]."""
    width = max(span.stop - span.start for span in laid.spans)
    tokens = torch.zeros(len(laid.spans), width, dtype=torch.int64)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, span in enumerate(laid.spans):
        tokens[row, : span.stop - span.start] = laid.tokens[span.start : span.stop]
        mask[row, : span.stop - span.start] = True
    return tokens, mask, mask.flatten().nonzero().squeeze(1)


class LanguagePolicy:
    """A Hugging Face causal language model as a policy.

    Args:
        module: the model; its weights are used in place.
        recompute: see `HiddenStates`.

    Attributes:
        states: gives the hidden states that the head reads.
    """

    def __init__(self, module: Any, *, recompute: bool = False) -> None:
        self.module: Any = module
        self.states = HiddenStates(module.get_decoder() if hasattr(module, "get_decoder") else module, recompute=recompute)
        self._head = plain_head(module)

    def cost(self, batch: TrainingBatch) -> list[int]:
        """See `Reader.cost`."""
        return self.states.cost(batch)

    def logprobs(self, batch: TrainingBatch, *, temperature: float) -> PolicyOutput:
        """See `Policy.logprobs`. Only completion positions go through the language-model head."""
        if self._head is not None:
            hidden, targets = self.states(batch)
            chosen, entropy = ops.through_head(hidden, self._head, targets, temperature=temperature)
        else:
            device = next(self.module.parameters()).device
            laid = stream(batch, share_prompt=False)
            tokens, mask, places = _rows(laid)
            logits = self.module(input_ids=tokens.to(device), attention_mask=mask.long().to(device), use_cache=False).logits
            rows = logits.flatten(0, 1)[places[laid.sources].to(device)]
            chosen, entropy = ops.from_logits(rows, laid.targets.to(device), temperature=temperature)
        return PolicyOutput(unpack(chosen, batch.loss_mask), unpack(entropy, batch.loss_mask))


def unpack(values: Tensor, mask: Tensor) -> Tensor:
    """[M] values of the masked positions, sequence by sequence → [B, T], 0 elsewhere."""
    mask = mask.to(values.device)
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def plain_head(module: Any) -> Tensor | None:
    """The language-model head's weight [V, C] when logits are exactly hidden @ weight.T, else None."""
    head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
    scaled = any(getattr(module.config, name, None) for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"))
    if type(head) is not nn.Linear or head.bias is not None or scaled or not hasattr(module, "get_decoder"):
        return None
    return head.weight
