from __future__ import annotations

import pytest
from pydantic import ValidationError
from tokenizers.processors import TemplateProcessing

from sharpen.errors import ModelError
from sharpen.problems import Template, render
from tiny import IM_END, IM_START, tiny_tokenizer


def text(template: Template, question: str = "What is 7 * 8?") -> str:
    tokenizer = tiny_tokenizer()
    return tokenizer.decode(render(question, template, tokenizer))


def with_bos() -> object:
    """A tokenizer that puts its BOS, `<|endoftext|>` (3), before a text, as Llama's does."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<|endoftext|>"})
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 3)])
    assert tokenizer("1")["input_ids"][0] == tokenizer.bos_token_id == 3
    return tokenizer


def test_chat_by_the_models_own_template() -> None:
    assert text(Template()) == "<|im_start|>user\nWhat is 7 * 8?<|im_end|>\n<|im_start|>assistant\n"
    assert text(Template(system="Be brief.", instruction="Answer with a number.")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is 7 * 8?\nAnswer with a number.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = render("1", Template(), tiny_tokenizer())
    assert (ids[0], ids.count(IM_START), ids.count(IM_END)) == (IM_START, 2, 1)


def test_plain_and_r1_zero() -> None:
    assert text(Template(name="plain")) == "What is 7 * 8?\n"
    assert text(Template(name="plain", instruction="A number:")) == "What is 7 * 8?\nA number:\n"
    zero = text(Template(name="r1_zero"), "Is {x} > 0?")
    assert zero.startswith("This is a conversation between User and Assistant.")
    assert zero.endswith("\nUser: Is {x} > 0?\nAssistant:")
    assert "<think> the reasoning </think> <answer> the answer </answer>" in zero


@pytest.mark.parametrize("name", ["chat", "r1_zero", "plain"])
def test_exactly_one_bos(name: str) -> None:
    tokenizer = with_bos()
    tokenizer.chat_template = "{{ bos_token }}Q: {{ messages[0]['content'] }} A:"
    ids = render("1 + 1", Template(name=name), tokenizer)
    assert ids[0] == 3
    assert ids.count(3) == 1
    tokenizer.chat_template = "{{ bos_token }}{{ bos_token }}Q: {{ messages[0]['content'] }} A:"
    assert render("1 + 1", Template(name=name), tokenizer).count(3) == 1


def test_no_bos_where_the_tokenizer_sets_none() -> None:
    assert IM_START not in render("1 + 1", Template(name="plain"), tiny_tokenizer())


def test_a_model_without_a_chat_template() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match=r'no chat template.\n.*template.name = "plain" or "r1_zero", or choose an instruct model'):
        render("1", Template(), tokenizer)
    assert len(render("1", Template(name="plain"), tokenizer)) == 2


def test_a_chat_template_that_refuses_a_system_message() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ messages[0]['content'] }}"
    )
    with pytest.raises(ModelError, match=r"refuses the messages: no system role.\n.*Leave template.system out"):
        render("1", Template(system="Be brief."), tokenizer)


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValidationError, match='only the template "chat" has a system message'):
        Template(name="plain", system="Be brief.")
    with pytest.raises(ValidationError):
        Template.model_validate({"name": "chatml"})
