"""Whether a sentence denies the value in it, only bounds it, or names another one as well."""

from __future__ import annotations

import re

_CLAUSE_START = re.compile(
    r"[.!?:](?=\s)|,(?!\d)|[;\n，。；：！？]|(?<!anything )(?<!\ball )\bbut\b|\b(?:so|because|since|therefore|hence|thus)\b"
    r"|因为|所以|因此|而是|但",
    re.IGNORECASE,
)
_OF_OTHERS = re.compile(
    r"\b(?:(?:who|which)(?:\s+\w+)?|that\s+(?:do|does|did|are|were|have))\s*(?:\bnot\b|n['’]t\b|\bnever\b)|\bnot\s+only\b|\bcannot\s+fail\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not|never|neither|nor|cannot|anything but|all but|other than|except|rather than|instead of|far from"
    r"|rul(?:e|es|ed|ing) out|reject\w*|exclud\w*|den(?:y|ies|ied))\b|n['’]t\b"
    r"|(?:不|非|没有|未)(?:可能|会|应该|应|该|能)?(?:是|为|等于|选择?|有)?\s*[\\$({\[]*\s*$|排除|除了",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:\b(?:(?:less|more|fewer|greater|larger|smaller|higher|lower|bigger)\s+than(?:\s+or\s+equal\s+to)?|at\s+(?:least|most)|up\s+to"
    r"|under|over|above|below|beyond|exceeds|exceeding|no)|至少|至多|最多|最少|大于|小于|超过|少于|多于|不到|低于|高于|不足)"
    r"(?:\s*(?:about|around|exactly|是))?\s*[-\\$({\[]*\s*$",
    re.IGNORECASE,
)
_JUDGED = re.compile(
    r"[\s$)}\]*]*(?:(?:is|was)\s*(?:\w+ly\s+)?(?:not\b|n['’]t\b)|can(?:not|['’]t|\s+not)\s+be\b"
    r"|(?:[A-Za-z]+\s+)?(?:is|was|seems|looks|must\s+be|would\s+be)\s+(?:\w+ly\s+)?(?:wrong|false|incorrect|impossible|invalid|mistaken|excluded|out)\b"
    r"|(?:是)?(?:不对|不正确|不可能|错))",
    re.IGNORECASE,
)
HEDGE = re.compile(
    r"[;.]\s{0,3}or\b|\b(?:maybe|perhaps|possibly)\b|[;；。]\s{0,3}或|也许|或许"
    r"|\b(?:but|though|although)\b[^.;\n]{0,20}?\b(?:could|might|may|maybe|perhaps|possibly)\b",
    re.IGNORECASE,
)
"""What stands between a value and another one that may be meant instead."""

_LOOKED_AT = 200


def is_refused(text: str, start: int, end: int) -> bool:
    """Whether the value between two places is denied or only a bound, by the words of its clause before it or by a judgement after it."""
    before = text[max(0, start - _LOOKED_AT) : start]
    begin = max((found.end() for found in _CLAUSE_START.finditer(before)), default=0)
    clause = _OF_OTHERS.sub("", before[begin:])
    return bool(_NEGATION.search(clause) or _BOUND.search(clause) or _JUDGED.match(text, end, end + _LOOKED_AT))
