"""Language consistency: which words of a chain of thought are in the target language."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from sharpen.errors import MissingPackageError, RewardError
from sharpen.rewards import language as module
from sharpen.rewards.functions import language
from sharpen.rewards.language import SCRIPTS, chain_of_thought, share

ENGLISH = "First we add the number of eggs that she sells every day at the market."
FRENCH = "Ensuite, nous multiplions le nombre total des oeufs par leur prix unitaire."
GERMAN = "Zuerst berechnen wir die Summe der Zahlen, danach teilen wir sie durch zwei."
SPANISH = "Primero sumamos los dos números y luego los multiplicamos por el precio."
RUSSIAN = "Сначала мы складываем все числа, а потом делим сумму на количество детей."
UKRAINIAN = "Спочатку ми додаємо всі числа, а потім ділимо їхню суму на кількість дітей."
CHINESE = "首先我们计算她每天卖掉的鸡蛋的数量。"
JAPANESE = "まず、彼女が毎日売る卵の数を計算します。"
KOREAN = "먼저 그녀가 매일 파는 달걀의 수를 계산합니다."
TEXTS = {
    "en": ENGLISH, "fr": FRENCH, "de": GERMAN, "es": SPANISH, "ru": RUSSIAN, "uk": UKRAINIAN, "zh": CHINESE, "ja": JAPANESE, "ko": KOREAN,
}  # fmt: skip


@pytest.mark.parametrize("written", TEXTS)
@pytest.mark.parametrize("target", TEXTS)
def test_each_language_is_itself_and_no_other(written: str, target: str) -> None:
    assert share(TEXTS[written], target) == float(written == target)


def test_a_mixed_chain_is_worth_its_share_of_words() -> None:
    # 15 English words, 17 Chinese characters
    assert share(f"{ENGLISH}\n{CHINESE}", "en") == pytest.approx(15 / 32)
    assert share(f"{ENGLISH}\n{CHINESE}", "zh") == pytest.approx(17 / 32)
    # two pieces in one script: 15 English words, 12 French ones
    assert share(f"{ENGLISH}\n{FRENCH}", "en") == pytest.approx(15 / 27)
    # English words among Chinese characters: "total", "number" of 2 + 7
    assert share("我们计算 total number 是多少", "zh") == pytest.approx(7 / 9)


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        (rf"{CHINESE} $\frac{{a}}{{b}} = \sin\theta$ 于是 \boxed{{\frac{{1}}{{2}}}}", "zh", 1.0),
        (rf"{CHINESE} \[ area = width \times height \]", "zh", 1.0),
        (rf"{CHINESE} \begin{{align*}} area &= width \end{{align*}}", "zh", 1.0),
        (rf"{CHINESE} $x = 5 \text{{ because the area is equal}}$", "zh", 17 / 22),  # what \text says counts
        (f"{CHINESE}\n```python\ntotal = eggs * price\n```\n`total`", "zh", 1.0),
        (f"{CHINESE}\n[asy]\ndraw(circle(origin, radius));\n[/asy]", "zh", 1.0),
        (f"{CHINESE} https://example.org/some/page x = 3, f(x) = y_1, x1 16个", "zh", 1.0),
        (f"{CHINESE} π θ sin cos mod gcd", "zh", 1.0),
        (f"{CHINESE}<|im_end|>", "zh", 1.0),
        ("She pays $18 every day and the other costs are $5 in the end of it", "zh", 0.0),  # dollars, no formula
        ("7 * 8 = 56", "zh", 1.0),  # symbols alone are in no other language
        (r"\boxed{56}", "en", 1.0),
        ("", "en", 0.0),
        (" \n", "en", 0.0),
        ("Ok, so", "en", 1.0),  # too short to tell
        ("Ok, so", "zh", 0.0),  # but not too short to see the script
        ("he\u200bllo the\u202e answer is right here for you", "en", 1.0),
        ("𝑥 + 𝒚 = ５６", "en", 1.0),
    ],
)
def test_what_is_no_word(text: str, target: str, value: float) -> None:
    assert share(text, target) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("<think>a b</think><answer>c</answer>", "a b"),
        ("a b</think> c", "a b"),  # the prompt opened it
        ("<think>a b", "a b"),  # cut at the limit
        ("<think>a</think> c <think>b</think>", "a\nb"),
        ("a b", "a b"),
    ],
)
def test_the_chain_of_thought(text: str, thought: str) -> None:
    assert chain_of_thought(text).strip() == thought


def test_the_answer_may_be_in_another_language() -> None:
    text = f"<think>{ENGLISH}</think><answer>{CHINESE}</answer>"
    assert language(completions=[text, f"<think></think>{ENGLISH}"], target="en") == [1.0, 0.0]
    assert language(completions=[text], target="zh") == [0.0]


def test_short_lines_are_judged_together() -> None:
    assert share("\n".join(FRENCH.split()), "en") == 0.0
    assert share("\n".join(FRENCH.split()), "fr") == 1.0


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(RewardError, match="unknown target 'eng'"):
        share(ENGLISH, "eng")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    module._identifier.cache_clear()
    with pytest.raises(MissingPackageError, match="py3langid"):
        share(ENGLISH, "en")
    module._identifier.cache_clear()
    assert share(CHINESE, "zh") == 1.0  # which script it is needs no package


def test_every_target_is_known_to_the_package() -> None:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    assert set(SCRIPTS) <= set(LanguageIdentifier.from_model_file(MODEL_FILE).labels)


@pytest.mark.parametrize("text", ["\\[" * 20_000, "\\begin{a}" * 5000, "$" * 40_000, "$a " * 20_000, "<think>" * 10_000, "`" * 50_000])
def test_no_text_takes_long(text: str) -> None:
    start = time.perf_counter()
    share(text, "en")
    assert time.perf_counter() - start < 5


def test_solutions_in_english_are_english(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "gsm8k" / "test.jsonl").read_text().splitlines()[:400]]
    shares = [share(row["answer"], "en") for row in rows]
    assert sum(shares) / len(shares) > 0.998
    assert sum(share(row["answer"], "fr") for row in rows) / len(rows) < 0.02


def test_questions_in_chinese_are_chinese(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "mgsm_zh.jsonl").read_text().splitlines()]
    assert sum(share(row["question"], "zh") for row in rows) / len(rows) > 0.99
    assert max(share(row["question"], "ja") for row in rows) == 0.0
