"""Reward models: a language model's body with a head to one number, read at the last token of a completion or of each of its steps.

An outcome model is a sequence classifier of `transformers` and gives a completion one logit; a process model is a token classifier and
gives a probability at the end of each step. Both are plain Hugging Face folders, with `reward_model.json` beside that says what they were
made of. One label is a logit; of two labels it is the second one's logit less the first one's, so that its sigmoid is the second's share.

Axes: B sequences, M numbers that are read of all of them, C hidden size.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sharpen.errors import ModelError
from sharpen.models import loading, policy
from sharpen.models.manifest import sync, sync_folder
from sharpen.models.reward_folder import CARD, Kind, kind_of, look
from sharpen.models.saving import quiet
from sharpen.records import TrainingBatch, pad

BATCH_TOKENS = 4096
"""Token positions of one forward pass that only scores."""

_HEADS = ("score", "classifier")


class Reading(NamedTuple):
    """What is read of one sequence.

    Attributes:
        prompt: token ids.
        completion: token ids that follow.
        places: where in the completion numbers are read; -1 is the prompt's last token.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    places: tuple[int, ...]


class RewardModel:
    """A loaded reward model; `load` reads one and `new` makes one.

    Args:
        module: a sequence or token classifier of one or two labels, in eval mode; its weights are used in place.
        tokenizer: its own.
        kind: `outcome` or `process`.
        name: as it was asked for.
        about: what `reward_model.json` says, or what it is to say.
        batch_tokens: token positions of one forward pass.
        recompute: keep little of a forward pass in training and compute it again.
    """

    def __init__(
        self,
        module: Any,
        tokenizer: Any,
        *,
        kind: Kind,
        name: str,
        about: Mapping[str, Any] | None = None,
        batch_tokens: int = BATCH_TOKENS,
        recompute: bool = False,
    ) -> None:
        self.module, self.tokenizer, self.kind, self.name = module, tokenizer, kind, name
        self.about, self.batch_tokens = dict(about or {}), batch_tokens
        head, body = getattr(module, "score", None), getattr(module, module.base_model_prefix, None)
        self._head = head if isinstance(head, nn.Linear) and body is not None else None
        self._states = None if self._head is None else policy.HiddenStates(body, recompute=recompute)
        self._context = getattr(module.config.get_text_config(), "max_position_embeddings", None)

    @property
    def reads_last_token(self) -> bool:
        """Whether a causal body is read at a token of ours; an encoder reads a question and an answer as a pair, in a way of its own."""
        return self._head is not None

    def fits(self, tokens: int) -> bool:
        """Whether a text of so many tokens has a place in the model's context."""
        return self._context is None or tokens <= self._context

    def score(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> list[float]:
        """One logit a completion, read at its last token (an empty one's at the prompt's); of a process model, its last step's.

        Args:
            prompts: token ids, one a completion; equal ones are read once where the architecture allows it.
            completions: token ids, the stop token included.

        Raises:
            ModelError: no token at all, or more tokens than the model has positions for.
        """
        self._check()
        wanted = [Reading(tuple(p), tuple(c), (len(c) - 1,)) for p, c in zip(prompts, completions, strict=True)]
        return [values[0] for values in self.read(wanted)]

    def score_steps(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """The probability that each step is right, read at its last token.

        Args:
            prompts: as in `score`.
            completions: as in `score`.
            ends: of each completion, the places of its steps' last tokens.

        Raises:
            ModelError: an outcome model, or as in `score`.
        """
        self._check("process")
        wanted = [Reading(tuple(p), tuple(c), tuple(e)) for p, c, e in zip(prompts, completions, ends, strict=True)]
        return [torch.tensor(values, dtype=torch.float64).sigmoid().tolist() for values in self.read(wanted)]

    def logits(self, sequences: Sequence[Reading]) -> Tensor:
        """The numbers of these sequences in one forward pass, [M], sequence by sequence, with gradient; in float32 at least."""
        rows = [self._normed(sequence) for sequence in sequences]
        if self._states is None:
            return self._whole(rows)
        hidden, _ = self._states(_batch(rows))
        starts = [0]
        for row in rows:
            starts.append(starts[-1] + len(row.completion) + 1)
        # What stands before token t + 1 is the state that token t left; the batch has one token more for that.
        index = [start + place + 1 for row, start in zip(rows, starts, strict=False) for place in row.places]
        return self._number(hidden[torch.tensor(index, dtype=torch.int64, device=hidden.device)])

    def batches(self, sequences: Sequence[Reading], budget: int | None = None, *, together: int = 1) -> Iterator[list[int]]:
        """Cut sequences into forward passes of at most so many token positions each.

        Args:
            sequences: what is read.
            budget: token positions, prompts and padding included; `batch_tokens` when None. What is longer by itself goes alone.
            together: so many neighbours are never parted: 2 for pairs.

        Returns:
            The places of the sequences of each pass.
        """
        budget = budget or self.batch_tokens
        shared = self._states is not None and self._states.share_prompt
        firsts: dict[tuple[int, ...], int] = {}
        for place, one in enumerate(sequences):
            firsts.setdefault(one.prompt, place)
        lengths = [len(one.prompt) + len(one.completion) + 1 for one in sequences]
        units = [list(range(start, min(start + together, len(sequences)))) for start in range(0, len(sequences), together)]
        # Equal prompts next to each other, or sequences of about one length.
        units.sort(key=lambda unit: firsts[sequences[unit[0]].prompt] if shared else max(lengths[place] for place in unit))
        current: list[int] = []
        prompts: set[tuple[int, ...]] = set()
        size = 0
        for unit in units:
            new = {sequences[place].prompt for place in unit}
            if shared:
                own = sum(lengths[place] - len(sequences[place].prompt) for place in unit)
                grown = size + own + sum(map(len, new - prompts))
            else:
                grown = (len(current) + len(unit)) * max(lengths[place] for place in [*current, *unit])
            if current and grown > budget:
                yield current
                current, prompts = [], set()
                grown = own + sum(map(len, new)) if shared else len(unit) * max(lengths[place] for place in unit)
            current, prompts, size = [*current, *unit], prompts | new, grown
        if current:
            yield current

    def save(self, folder: Path | str, beside: Callable[[Path], None] | None = None) -> Path:
        """Write weights, config, tokenizer and `reward_model.json`: under another name first, then renamed; what was there is replaced.

        Args:
            folder: where it will lie.
            beside: writes more into the folder before it is renamed.

        Raises:
            ModelError: the folder cannot be written.
        """
        folder = Path(folder)
        temporary = folder.with_name(f".writing-{folder.name}")
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            self.write(temporary)
            if beside is not None:
                beside(temporary)
                sync_folder(temporary)
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(temporary, folder)
            sync(folder.parent)
        except OSError as error:
            raise ModelError(
                f"The reward model cannot be written to {folder}: {error}.", fix="Choose a folder that you may write."
            ) from error
        return folder

    def write(self, folder: Path) -> None:
        """Write the files into a folder, in place."""
        with quiet():
            self.module.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        (folder / CARD).write_text(json.dumps({"kind": self.kind, **self.about}, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        sync_folder(folder)

    def close(self) -> None:
        """Give the memory of the weights back; the model is of no use afterwards."""
        on_cuda = self.module is not None and next(self.module.parameters()).is_cuda
        self.module = self._head = self._states = None
        gc.collect()
        if on_cuda:
            torch.cuda.empty_cache()

    def _check(self, kind: Kind | None = None) -> None:
        if self.module is None:
            raise ModelError(f"The reward model {self.name} has been closed.", fix="Load it again.")
        if kind not in (None, self.kind):
            what = "one number for a completion" if self.kind == "outcome" else "a number for each step"
            raise ModelError(
                f"The reward model {self.name} is of kind {self.kind}, which gives {what}; one of kind {kind} is needed here.",
                fix="Name another model: [rewards.steps] takes process models only.",
            )

    @torch.no_grad()
    def read(self, sequences: Sequence[Reading], on_progress: Callable[[int], None] | None = None) -> list[list[float]]:
        """The logits of these sequences, a list each, without gradient.

        Args:
            sequences: what is read where.
            on_progress: called with the number of sequences that have just been read.
        """
        out: list[list[float]] = [[] for _ in sequences]
        for places in self.batches(sequences):
            found = self.logits([sequences[place] for place in places]).tolist()
            for place in places:
                count = len(sequences[place].places)
                out[place], found = found[:count], found[count:]
            if on_progress is not None:
                on_progress(len(places))
        return out

    def _normed(self, one: Reading) -> Reading:
        """With a prompt of at least one token, which the stream needs."""
        total = len(one.prompt) + len(one.completion)
        if total == 0:
            raise ModelError(f"The reward model {self.name} was given a text without any token.", fix="Give a prompt or a completion.")
        if not self.fits(total):
            raise ModelError(
                f"A prompt of {len(one.prompt)} and a completion of {len(one.completion)} tokens need {total} positions, and the reward "
                f"model {self.name} has {self._context}.",
                fix="Shorten rollout.max_new_tokens, or take a reward model with a longer context.",
            )
        if one.prompt:
            return one
        return Reading(one.completion[:1], one.completion[1:], tuple(place - 1 for place in one.places))

    def _number(self, hidden: Tensor) -> Tensor:
        """[M, C] → [M]."""
        assert self._head is not None
        wide = torch.promote_types(hidden.dtype, torch.float32)
        bias = None if self._head.bias is None else self._head.bias.to(wide)
        return _one(functional.linear(hidden.to(wide), self._head.weight.to(wide), bias))

    def _whole(self, rows: Sequence[Reading]) -> Tensor:
        """By the model's own forward pass, over rows padded on the right."""
        device = next(self.module.parameters()).device
        texts = [row.prompt + row.completion for row in rows]
        tokens, mask = pad(texts, dtype=torch.int64), pad([(1,) * len(text) for text in texts], dtype=torch.int64)
        logits = self.module(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.kind == "outcome":
            return _one(logits)
        index = [(i, len(row.prompt) + place) for i, row in enumerate(rows) for place in row.places]
        where = torch.tensor(index, dtype=torch.int64, device=device).reshape(-1, 2)
        return _one(logits[where[:, 0], where[:, 1]])


def load(
    name: str, *, kind: Kind | None = None, dtype: str = "auto", device: str = "auto", batch_tokens: int = BATCH_TOKENS
) -> RewardModel:
    """Load a reward model: a folder that `sharpen train-reward-model` wrote, or any sequence or token classifier of one or two labels.

    Args:
        name: a folder, or a hub id.
        kind: what it has to be; None takes either.
        dtype: of the weights, as `loading.load` takes it.
        device: as `loading.load` takes it.
        batch_tokens: token positions of one forward pass.

    Raises:
        ModelError: no such model, or one that is no reward model; the message says what was found and what to do.
    """
    found = look(name, kind)
    device = loading.resolve_device(device)
    with quiet():
        tokenizer = loading.load_tokenizer(found.folder, name)
        module = loading.load_weights(found.folder, name, loading.resolve_dtype(dtype, device), device, kind=CLASSES[found.kind])
    loading.finish(module, tokenizer, name)
    return RewardModel(module, tokenizer, kind=found.kind, name=name, about=found.about, batch_tokens=batch_tokens)


def new(name: str, kind: Kind, *, dtype: str = "auto", device: str = "auto", recompute: bool = False) -> RewardModel:
    """A reward model to be trained: a causal language model's body with a head of zeros, so that every logit begins at 0.

    Args:
        name: `embedded`, `tiny`, a folder or a hub id; a reward model of this kind goes on from what it is.
        kind: `outcome` or `process`.
        dtype: of the weights.
        device: as `loading.load` takes it.
        recompute: see `RewardModel`.

    Raises:
        ModelError: no such model, or one whose architecture has no such head.
    """
    device = loading.resolve_device(device)
    folder = loading.find_folder(name)
    loading.check_folder(folder, name)
    trained = kind_of(folder) == kind and look(name, kind) is not None
    fresh: dict[str, Any] = {} if trained else {"new_head": _HEADS, "num_labels": 1}
    with quiet():
        tokenizer = loading.load_tokenizer(folder, name)
        module = loading.load_weights(folder, name, loading.resolve_dtype(dtype, device), device, kind=CLASSES[kind], **fresh)
    loading.finish(module, tokenizer, name)
    if not trained:
        head = next((getattr(module, known) for known in _HEADS if isinstance(getattr(module, known, None), nn.Linear)), None)
        if head is None:
            raise ModelError(
                f"The {loading.SEQUENCE if kind == 'outcome' else loading.TOKEN} of {name} has no plain head.", fix="Take another model."
            )
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        if module.config.get_text_config().pad_token_id is None:  # without one, transformers refuses batches
            module.config.pad_token_id = _pad_id(tokenizer)
    return RewardModel(module, tokenizer, kind=kind, name=name, about={"base": name}, recompute=recompute)


CLASSES: Mapping[Kind, str] = {"outcome": loading.SEQUENCE, "process": loading.TOKEN}


def _pad_id(tokenizer: Any) -> int | None:
    """The tokenizer's pad id, else its end of text."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id


def vocabulary_digest(tokenizer: Any) -> str:
    """SHA-256 over a tokenizer's tokens with their ids: tokenizers of one digest mean the same by an id."""
    digest = hashlib.sha256()
    for token, number in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        digest.update(f"{number} {token!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _one(logits: Tensor) -> Tensor:
    """[..., 1 or 2] → [...]."""
    return logits.squeeze(-1) if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


def _batch(rows: Sequence[Reading]) -> TrainingBatch:
    """The sequences with one token more each, as what reads hidden states takes them."""
    places: dict[tuple[int, ...], int] = {}
    group = [places.setdefault(row.prompt, len(places)) for row in rows]
    tokens = pad([(*row.completion, 0) for row in rows], dtype=torch.int64)
    zeros = torch.zeros(tokens.shape)
    return TrainingBatch(
        prompts=tuple(places),
        group_index=torch.tensor(group, dtype=torch.int64),
        tokens=tokens,
        loss_mask=pad([(1,) * (len(row.completion) + 1) for row in rows], dtype=torch.int64).bool(),
        advantages=zeros,
        weights=zeros,
        sampling_logprobs=zeros,
    )
