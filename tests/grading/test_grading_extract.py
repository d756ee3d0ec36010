from __future__ import annotations

import time

import pytest

from sharpen.grading.extract import boxes, declared, extract, extract_answer

FOUND = [
    # boxes
    (r"so \boxed{42}.", "42"),
    (r"I first thought \boxed{41} but \boxed{42}", "42"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{x = \boxed{5}}", "5"),
    (r"\fbox{7}", "7"),
    (r"\boxed {7}", "7"),
    (r"$$\boxed{42}$$" "\n\n" r"\boxed{42}", "42"),
    (r"\boxed{3}, \boxed{5}", "3, 5"),
    (r"$\boxed{3}$ and $\boxed{5}$", "3, 5"),
    (r"\boxed{0.5} or \boxed{\frac12}", r"\frac12"),
    (r"\boxed{41} or less. So \boxed{42}", "42"),
    (r"\boxed{\boxed{3", None),
    (r"答案是 \boxed{5}", "5"),
    (r"{ \boxed{5}", "5"),
    # several different alternatives, or nothing, are no answer
    (r"\boxed{41} or \boxed{42} or \boxed{43}", None),
    (r"\boxed{41} or maybe it is \boxed{42}", None),
    (r"\boxed{41}或\boxed{42}", None),
    (r"\boxed{}", None),
    (r"41 \boxed{ }", None),
    ("It is 41 or 42.", None),
    ("", None),
    ("I do not know.", None),
    # thinking
    (r"<think>\boxed{43}</think> \boxed{42}", "42"),
    (r"perhaps \boxed{43}</think> \boxed{42}", "42"),
    (r"<think>\boxed{43}</think>", None),
    (r"<think>\boxed{43}", None),
    (r"<think>a</think> 42 <think> no, 43", None),
    # answer tags
    ("<think>41</think> <answer>42</answer>", "42"),
    (r"<answer>so \boxed{42}</answer>", "42"),
    (r"\boxed{41} <answer>42</answer>", "42"),
    ("<answer>41</answer> no: <answer> $42$ </answer>", "42"),
    ("<answer>She has 42 apples.</answer>", "42"),
    ("<answer>x^2 + 1</answer>", "x^2 + 1"),
    ("<answer>either 41 or 42</answer>", None),
    ("<answer>41 or 42</answer>", "41 or 42"),
    ("<answer></answer>", None),
    ("<answer>42", "42"),
    # hashes
    ("3 * 14 = 42\n#### 42", "42"),
    ("#### $1,234", "1,234"),
    ("#### Step 3: double it\nThat makes 42", "42"),
    # phrases
    ("The answer is -3", "-3"),
    ("The answer is 7,425,000.", "7,425,000"),
    (r"The answer is $\frac{1}{2}$, because 3 is odd", r"\frac{1}{2}"),
    ("The answer is $18 per day.", "$18"),
    ("The answer is 6 * 7 = 42 apples", "42"),
    ("The answer is 42 apples, since 6 * 7 = 42.", "42"),
    ("the answer is x = 5", "x = 5"),
    ("the answer is 3 or 5.", "3 or 5"),
    (r"the answer is $3$ or $5$.", "3 or 5"),
    ("the answer is 12 apples and 5 pears", "12 apples and 5 pears"),
    ("**Answer:** 42", "42"),
    ("**Final answer**: **42**", "42"),
    ("The final answer is:\n\\[ x^2 + 1 \\]", "x^2 + 1"),
    ("Answer: 41\nNo. Answer: 42", "42"),
    ("The answer is no number", "no number"),
    ("答案：５", "5"),
    ("答案：５，谢谢", "5"),
    ("答：一共有１８只。", "18"),
    ("答案是5和6", "5和6"),
    ("The answer is 40. Wait, I forgot 2. The answer is 42.", "42"),
    (r"$$\boxed{\;42\;}$$", "42"),
    ("They walk 3 miles in 2 hours", "2 hours"),
    ("所以答案是 18 元。", "18 元"),
    # the last number
    ("7 * 8 = 56", "56"),
    ("7 * 8 = 56.", "56"),
    ("10 - 3", "3"),
    ("x = -3", "-3"),
    ("-$5 in all", "-$5"),
    ("so 3/4 of it", "3/4"),
    ("she needs 2 1/2 cups", "2 1/2"),
    (r"so \frac34 of it", r"\frac34"),
    ("#### $$", None),
    (r"so \frac{3}{4} of it", r"\frac{3}{4}"),
    ("which is 28 percent", "28 percent"),
    ("it costs $18 and she gets $5 back", "$5"),
    ("a rope of 5kg", "5 kg"),
    ("The area is 50 cm^2.", "50 cm^2"),
    ("Thus $2 + 3 = 5$.", "5"),
    (r"Its length is $\sqrt{2}$.", r"\sqrt{2}"),
]


@pytest.mark.parametrize(("text", "answer"), FOUND)
def test_the_answer_that_is_found(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_no_answer_has_a_reason() -> None:
    assert extract(r"\boxed{41} or \boxed{42}").how == "no answer: several different ones, 41 or 42"
    assert extract("<think>41").how == "no answer: the thinking is not finished"
    assert extract(r"\boxed{}").how == "no answer: the last box is empty"
    assert extract("hm").how == "no answer found"


def test_boxes_holds_closed_boxes_with_their_places() -> None:
    assert boxes(r"a \boxed{1} b \boxed{\text{x}\}} \boxed{2") == [(2, 11, "1"), (14, 32, r"\text{x}\}")]


@pytest.mark.parametrize(
    ("text", "declaration"),
    [
        ("<answer>\n1 2\n3 4\n</answer>", "1 2\n3 4"),
        (r"<answer>\boxed{abc}</answer>", "abc"),
        (r"thus \boxed{abc}", "abc"),
        ("The answer is abc.", "abc"),
        ("<think>xyz</think>\nabc\n", "abc"),
        ("<think>xyz", ""),
    ],
)
def test_declared_is_word_for_word(text: str, declaration: str) -> None:
    assert declared(text) == declaration


HOSTILE = [
    *(r"\boxed{" * 5000, r"\(" * 15000, r"\[" * 15000, "$ " * 15000, "$$a" * 10000, "{" * 30000, r"\frac{1" * 4000, r"\text{ " * 4000),
    *("<answer>" * 4000, "<think>" * 4000, "the answer is " * 2000, r"\boxed{1} or " * 2000, "####" * 7000, "answer :" + ": " * 15000),
    *("1 " * 15000, "1," * 15000, "9" * 30000, "-$" * 15000, "5" + " " * 30000 + "/x", "\n" * 30000, " " * 30000, "*" * 30000),
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:10]))
def test_no_text_takes_long(text: str) -> None:
    start = time.perf_counter()
    extract(text)
    extract(rf"\boxed{{{text}}}")
    declared(text)
    assert time.perf_counter() - start < 2.0
