"""Reward models as reward functions: `model` of `[[rewards.functions]]` judges completions, and of `[rewards.steps]` their steps.

A model is loaded when it is first needed. Where its tokens are the policy's it reads the very ids that were sampled, the prompt's template
included; else the texts are encoded anew, the question in the reward model's own template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sharpen.errors import ModelError, RewardError, SharpenError
from sharpen.models import loading, reward_model
from sharpen.models.manifest import file_digest
from sharpen.models.reward_folder import TRAIN, Kind, look
from sharpen.models.reward_model import RewardModel, vocabulary_digest
from sharpen.problems.templates import Template, render
from sharpen.rewards.learned_settings import LearnedSettings, OutcomeSettings

Tokens = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ModelMemory:
    """Bytes that reward models need on one device.

    Attributes:
        held: weights that stay for the whole run.
        loaded: how much of these is there already.
        scoring: what is needed while completions are scored, beside what is held: weights that come and go, and activations.
    """

    held: int = 0
    loaded: int = 0
    scoring: int = 0


class Learned:
    """What outcome and process models share.

    Args:
        settings: the recipe's parameters.
        kind: of the model that is needed; None takes either.
        what: it is, for messages.
        base: the recipe's folder.

    Raises:
        RewardError: no such model, or one of another kind; nothing is loaded yet.
    """

    def __init__(self, settings: LearnedSettings, kind: Kind | None, base: Path | None, what: str) -> None:
        self.settings = settings
        try:
            self.found = look(settings.find(base), kind)
        except ModelError as error:
            raise RewardError(f"{what} 'model', path: {error.what}", fix=TRAIN) from error
        self.device = loading.resolve_device(settings.device)
        self.dtype = loading.resolve_dtype(settings.dtype, self.device)
        self._model: RewardModel | None = None
        self._policy: Any = None
        self._same: bool | None = None
        self._notice: Callable[[str], None] | None = None

    def meet(self, tokenizer: Any, notice: Callable[[str], None]) -> None:
        """Learn whose tokens will come.

        Args:
            tokenizer: the policy's.
            notice: told where texts have to be encoded anew.
        """
        self._policy, self._notice, self._same = tokenizer, notice, None

    def release(self) -> None:
        """Give the weights' memory back unless they are to be kept."""
        if not self.settings.keep:
            self.close()

    def close(self) -> None:
        """Give the weights' memory back; they are loaded again when they are needed."""
        if self._model is not None:
            self._model.close()
            self._model = None

    def memory(self, device: str) -> ModelMemory:
        """What it needs on this device; nothing where it lies on another."""
        if self.device.partition(":")[0] != device.partition(":")[0]:
            return ModelMemory()
        weights = self.found.parameters * (4 if self.dtype == "float32" else 2)
        hidden = int(self.found.config.get("hidden_size") or 0)
        inner = int(self.found.config.get("intermediate_size") or 4 * hidden)
        # Without a gradient one layer's activations exist at once: a residual stream, a norm, queries, keys, values and their mixture, and
        # the three products of a gated feed-forward layer. The process grew by twice that, for what is freed is not all used again.
        activations = 2 * self.settings.batch_tokens * (7 * hidden + 3 * inner) * 4
        if self.settings.keep:
            return ModelMemory(held=weights, loaded=weights if self._model is not None else 0, scoring=activations)
        return ModelMemory(scoring=weights + activations)

    def digest(self) -> str:
        """SHA-256 over its weights, so that a resumed run notices other ones."""
        return " ".join(file_digest(path) for path in sorted(self.found.folder.glob("*.safetensors")))

    def model(self) -> RewardModel:
        """The loaded model; RewardError where it cannot be loaded."""
        if self._model is None:
            try:
                self._model = reward_model.load(
                    str(self.found.folder),
                    kind=self.found.kind,
                    dtype=self.dtype,
                    device=self.device,
                    batch_tokens=self.settings.batch_tokens,
                )
            except SharpenError as error:
                raise RewardError(f"Reward function 'model': {error.what}", fix=error.fix) from error
            except torch.OutOfMemoryError as error:
                raise RewardError(
                    f"Reward function 'model': {self.settings.path} does not fit into memory beside the policy.",
                    fix="Set its parameter keep = false, or dtype = 'bfloat16', or take a smaller model.",
                ) from error
        return self._model

    def same_tokens(self, model: RewardModel) -> bool:
        """Whether the policy's ids mean the same to the reward model, and its prompts are put as the reward model knows them."""
        if self._policy is None or not model.reads_last_token:
            return False
        if self._same is None:
            theirs = getattr(model.tokenizer, "chat_template", None)
            self._same = vocabulary_digest(self._policy) == vocabulary_digest(model.tokenizer) and (
                not theirs or theirs == self._policy.chat_template
            )
            if not self._same and self._notice is not None:
                self._notice(
                    f"reward model {self.settings.path}: its tokens or its chat template are not the policy's; texts are encoded anew"
                )
        return self._same

    def texts(self, model: RewardModel, question: str, prompt_ids: Sequence[int], text: str, stopped: bool) -> tuple[Tokens, Tokens]:
        """A question and a completion as the reward model's tokens.

        Args:
            model: the loaded model.
            question: as text, before any template.
            prompt_ids: the policy's prompt, for a model without any template.
            text: of the completion.
            stopped: whether it ended by itself.
        """
        tokenizer = model.tokenizer
        if not model.reads_last_token:
            return (), tuple(tokenizer(question, text)["input_ids"])
        stated = model.about.get("template")
        chat = stated is None and bool(getattr(tokenizer, "chat_template", None))
        if stated is not None or chat:
            prompt = render(question, Template.model_validate(stated or {"name": "chat"}), tokenizer)
        elif self._policy is not None:
            prompt = tuple(tokenizer(self._policy.decode(list(prompt_ids), skip_special_tokens=True))["input_ids"])
        else:
            prompt = render(question, Template(name="plain"), tokenizer)
        if chat and stopped:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
            whole = tuple(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
            if whole[: len(prompt)] == prompt:
                return prompt, whole[len(prompt) :]
        return prompt, (*tokenizer(text, add_special_tokens=False)["input_ids"], *self._end(model, stopped))

    def _end(self, model: RewardModel, stopped: bool) -> Tokens:
        end = model.tokenizer.eos_token_id
        return (end,) if stopped and end is not None else ()


class OutcomeReward(Learned):
    """The reward function `model`: a logit or probability of the whole, from a process model that of its last step; see `Learned`."""

    def __init__(self, settings: OutcomeSettings, base: Path | None = None) -> None:
        super().__init__(settings, None, base, "Reward function")
        self.output = settings.output

    def __call__(
        self,
        *,
        prompts: Sequence[str],
        completions: Sequence[str],
        prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]],
        finish_reason: Sequence[str],
    ) -> list[float]:
        """One value a completion."""
        model = self.model()
        if self.same_tokens(model):
            read = [(tuple(p), tuple(c)) for p, c in zip(prompt_ids, completion_ids, strict=True)]
        else:
            rows = zip(prompts, prompt_ids, completions, finish_reason, strict=True)
            read = [self.texts(model, question, ids, text, reason == "stop") for question, ids, text, reason in rows]
        logits = model.score([prompt for prompt, _ in read], [completion for _, completion in read])
        return logits if self.output == "logit" else torch.tensor(logits, dtype=torch.float64).sigmoid().tolist()


class StepReward(Learned):
    """The step function `model`: a process model's probability that a step is right; see `Learned`."""

    def __init__(self, settings: LearnedSettings, base: Path | None = None) -> None:
        super().__init__(settings, "process", base, "Step function")

    def __call__(
        self,
        steps: Sequence[Sequence[str]],
        *,
        prompts: Sequence[str],
        completions: Sequence[str],
        prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]],
        finish_reason: Sequence[str],
        step_ends: Sequence[Sequence[int]],
    ) -> list[list[float | None]]:
        """One value a step; None for the steps of a completion that is longer than the model can read."""
        model = self.model()
        if self.same_tokens(model):
            read = [(tuple(p), tuple(c), tuple(e)) for p, c, e in zip(prompt_ids, completion_ids, step_ends, strict=True)]
        else:
            rows = zip(prompts, prompt_ids, completions, finish_reason, completion_ids, step_ends, strict=True)
            read = [self._anew(model, *row) for row in rows]
        fits = [place for place, (prompt, completion, _) in enumerate(read) if model.fits(len(prompt) + len(completion))]
        prompts_, completions_, ends = ([read[place][part] for place in fits] for part in range(3))
        found = dict(zip(fits, model.score_steps(prompts_, completions_, ends), strict=True))
        return [list(found[place]) if place in found else [None] * len(one) for place, one in enumerate(steps)]

    def _anew(
        self, model: RewardModel, question: str, prompt_ids: Sequence[int], text: str, reason: str, ids: Sequence[int], ends: Sequence[int]
    ) -> tuple[Tokens, Tokens, Tokens]:
        """Prompt, completion and the steps' ends in the reward model's tokens, found by the places of characters."""
        if not model.tokenizer.is_fast:
            raise RewardError(
                f"Step function 'model': the tokenizer of {self.settings.path} does not tell which characters a token stands for, so the "
                "ends of steps cannot be found in it.",
                fix="Take a process model with a fast tokenizer (tokenizer.json), or one with the policy's tokens.",
            )
        prompt, _ = self.texts(model, question, prompt_ids, "", False)
        encoded = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        starts, end = [start for start, _ in encoded["offset_mapping"]], self._end(model, reason == "stop")
        tokens = (*encoded["input_ids"], *end)
        body = len(ids) - (reason == "stop")
        found = []
        for place in ends:
            upto = len(self._policy.decode(list(ids[: min(place + 1, body)]), skip_special_tokens=False))
            inside = sum(start < upto for start in starts) - 1
            found.append(len(tokens) - 1 if place == len(ids) - 1 else max(0, inside))
        return prompt, tokens or self._end(model, True), tuple(max(0, place) for place in found)
