"""From a problem's prompt to the tokens that a completion continues."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from sharpen.errors import ModelError
from sharpen.problems.settings import Settings

# After DeepSeek-R1-Zero's template (arXiv:2501.12948, Table 1), which states the two pairs of tags and leaves the content free.
_R1_ZERO = (
    "This is a conversation between User and Assistant. User asks a question, and Assistant solves it. Assistant first thinks the "
    "problem through, and then gives User the answer. The reasoning stands within <think> </think> and the answer within "
    "<answer> </answer>, that is: <think> the reasoning </think> <answer> the answer </answer>\nUser: {question}\nAssistant:"
)


class Template(Settings):
    """How a question is put to the model."""

    name: Literal["chat", "r1_zero", "plain"] = Field(
        "chat",
        description="chat: the model's own chat template; r1_zero: think and answer tags, for a base model; plain: the question alone",
    )
    system: str | None = Field(None, description="the system message; for chat only")
    instruction: str | None = Field(None, description="added to each question on a line of its own, such as: Put the answer in \\boxed{}.")

    @model_validator(mode="after")
    def _fits(self) -> Template:
        if self.system is not None and self.name != "chat":
            raise ValueError(f'system: only the template "chat" has a system message, this is "{self.name}"; use instruction')
        return self


def render(problem_prompt: str, template: Template, tokenizer: Any) -> tuple[int, ...]:
    """The prompt's token ids, template included.

    The token that begins a text (BOS) stands first, once, for tokenizers and chat templates that set one, and is not added for others.

    Args:
        problem_prompt: the question, for example `What is 7 * 8?`.
        template: how it is put.
        tokenizer: a Hugging Face tokenizer.

    Raises:
        ModelError: the template is `chat` and the model has no chat template, or its chat template refuses the messages.
    """
    question = problem_prompt if template.instruction is None else f"{problem_prompt}\n{template.instruction}"
    if template.name == "chat":
        return _one_bos(_chat(question, template, tokenizer), tokenizer)
    text = _R1_ZERO.format(question=question) if template.name == "r1_zero" else f"{question}\n"
    return _one_bos([*_prefix(tokenizer), *tokenizer(text, add_special_tokens=False)["input_ids"]], tokenizer)


def _chat(question: str, template: Template, tokenizer: Any) -> list[int]:
    from jinja2.exceptions import TemplateError

    if not tokenizer.chat_template:
        raise ModelError(
            f"the model '{tokenizer.name_or_path}' has no chat template.",
            fix='Use template.name = "plain" or "r1_zero", or choose an instruct model.',
        )
    messages = [{"role": "user", "content": question}]
    if template.system is not None:
        messages.insert(0, {"role": "system", "content": template.system})
    try:
        ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    except TemplateError as error:
        raise ModelError(
            f"the chat template of '{tokenizer.name_or_path}' refuses the messages: {error}.",
            fix="Leave template.system out, or use another template." if template.system else "Use another template.",
        ) from error
    return ids


def _prefix(tokenizer: Any) -> list[int]:
    """What this tokenizer puts before a text by itself: its BOS, or nothing."""
    bos = tokenizer.bos_token_id
    return [bos] if bos is not None and tokenizer("1")["input_ids"][:1] == [bos] else []


def _one_bos(ids: list[int], tokenizer: Any) -> tuple[int, ...]:
    """The ids without a second BOS at the front."""
    while len(ids) > 1 and tokenizer.bos_token_id is not None and ids[0] == ids[1] == tokenizer.bos_token_id:
        ids = ids[1:]
    return tuple(ids)
