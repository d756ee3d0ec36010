"""From rows of a file or data set to problems: which field is what, and what an answer looks like."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from sharpen.errors import ProblemError, nearest
from sharpen.grading.code_tests import read_tests
from sharpen.grading.extract import boxes
from sharpen.grading.parameters import KEY, parameter_fault
from sharpen.problems.settings import Settings
from sharpen.records import Problem

Row = tuple[str, Mapping[str, Any]]
"""Where a row stands (`train.jsonl:17`) and its fields."""

_INTEGRAL = re.compile(r"(-?\d+)\.0+")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


class Fields(Settings):
    """How rows become problems."""

    prompt_field: str = Field("question", description="the field with the question")
    answer_field: str = Field("answer", description="the field with the ground truth")
    id_field: str | None = Field(None, description="the field with the id; left out, ids are the source's name and the row's number")
    choices_field: str | None = Field(None, description="a list of choices, added to the question as lines that begin with A., B., ...")
    answer_extraction: Literal["none", "hashes", "boxed", "auto"] = Field(
        "none", description="the answer within its field: all of it, after ####, in the last box, or whichever of these there is"
    )
    kind: Literal["math", "choice", "exact", "numeric", "regex", "code"] = Field(
        "math",
        description="the grader: mathematics, an option of a choice, the same text, a number within a tolerance, a regular expression "
        "(see docs/grading.md), or the tests of a program (see docs/sandbox.md)",
    )
    grading: dict[str, Any] = Field(
        default_factory=dict,
        description='how the grader compares: mode = "paper" (math); absolute, relative (numeric); ignore_case, whole_text (regex, exact)',
    )
    tests_field: str = Field("tests", description='with kind = "code", the field with the tests; no answer is needed')
    solution_field: str = Field("solution", description='with kind = "code", the field with a program that passes them, where there is one')
    limit: int | None = Field(None, ge=1, description="only the first so many rows")

    @model_validator(mode="after")
    def _fits_the_kind(self) -> Self:
        if (fault := parameter_fault(self.kind, self.grading)) is not None:
            raise ValueError(f"grading: {fault}")
        return self


def to_problems(rows: Iterable[Row], fields: Fields, *, name: str) -> list[Problem]:
    """The problems of some rows, in order.

    Fields of a row that are not used otherwise go into `meta`, and an answer from which the ground truth is extracted, as `solution`.

    Args:
        rows: where each stands, and its fields.
        fields: which field is what.
        name: what ids begin with where no field holds them: `gsm8k/train` gives `gsm8k/train/0`.

    Raises:
        ProblemError: for a row that makes no problem, and for an id that comes twice.
    """
    problems: list[Problem] = []
    places: dict[str, str] = {}
    for number, (place, row) in enumerate(islice(rows, fields.limit)):
        problem = _to_problem(place, row, fields, default_id=f"{name}/{number}")
        if problem.id in places:
            raise ProblemError(
                f"{place}: the id '{problem.id}' is already that of {places[problem.id]}.",
                fix="Give every row its own id, or leave id_field out.",
            )
        places[problem.id] = place
        problems.append(problem)
    return problems


def _to_problem(place: str, row: Mapping[str, Any], fields: Fields, *, default_id: str) -> Problem:
    prompt = _field(place, row, fields.prompt_field, "prompt_field")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ProblemError(
            f"{place}: field '{fields.prompt_field}' is {_show(prompt)}, expected a question as text.",
            fix="Remove or mend the row, or name another field with prompt_field.",
        )
    if fields.choices_field is not None:
        prompt = _with_choices(place, prompt, _field(place, row, fields.choices_field, "choices_field"))
    id = default_id if fields.id_field is None else str(_field(place, row, fields.id_field, "id_field"))
    if fields.kind == "code":
        return Problem(id=id, prompt=prompt.strip(), answer="", kind="code", meta=_code_meta(place, row, fields))
    raw = _answer(place, _field(place, row, fields.answer_field, "answer_field"), fields)
    answer = _extract(place, raw, fields)
    used = {fields.prompt_field, fields.answer_field, fields.id_field, fields.choices_field, KEY}
    meta = {key: value for key, value in row.items() if key not in used}
    grading = dict(fields.grading)
    if fields.choices_field is not None and fields.kind == "choice":
        grading.setdefault("choices", [str(choice) for choice in row[fields.choices_field]])
    if grading:
        meta[KEY] = grading
    if answer != raw:
        meta.setdefault("solution", raw)
    return Problem(id=id, prompt=prompt.strip(), answer=_tidy(answer), kind=fields.kind, meta=meta)


def _code_meta(place: str, row: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """The fields of a code problem, its tests and its solution by these names; the tests can be read."""
    renamed = {fields.tests_field: "tests", fields.solution_field: "solution"}
    _field(place, row, fields.tests_field, "tests_field")
    meta = {renamed.get(key, key): value for key, value in row.items() if key not in (fields.prompt_field, fields.id_field)}
    try:
        read_tests(meta)
    except ValueError as error:
        what = str(error).replace("tests", fields.tests_field, 1) if str(error).startswith("tests") else str(error)
        raise ProblemError(f"{place}: field '{what.partition(':')[0]}':{what.partition(':')[2]}.", fix="Mend or remove the row.") from None
    return meta


def _field(place: str, row: Mapping[str, Any], name: str, setting: str) -> Any:
    if name in row:
        return row[name]
    raise ProblemError(
        f"{place}: there is no field '{name}'; the row has {', '.join(map(repr, row)) or 'none'}.{nearest(name, row)}",
        fix=f"Set {setting} to the field that is meant.",
    )


def _with_choices(place: str, prompt: str, choices: Any) -> str:
    if not isinstance(choices, (list, tuple)) or not 2 <= len(choices) <= 26:
        raise ProblemError(f"{place}: the choices are {_show(choices)}, expected a list of 2 to 26.", fix="Mend the row.")
    return "\n".join([prompt.strip(), *(f"{chr(ord('A') + i)}. {choice}" for i, choice in enumerate(choices))])


def _answer(place: str, value: Any, fields: Fields) -> str:
    """The answer's field as text; a number exactly, `72` for 72.0; the index of a choice as its letter."""
    text = value.strip() if isinstance(value, str) else ""
    if isinstance(value, int) and not isinstance(value, bool):
        text = chr(ord("A") + value) if fields.kind == "choice" and 0 <= value < 26 else str(value)
    elif isinstance(value, (float, Decimal)) and math.isfinite(value):
        text = f"{Decimal(repr(value)) if isinstance(value, float) else value:f}"
    if not text:
        raise ProblemError(
            f"{place}: field '{fields.answer_field}' is {_show(value)}, expected the answer as text or a number.",
            fix="Remove or mend the row, or name another field with answer_field.",
        )
    return text


def _extract(place: str, text: str, fields: Fields) -> str:
    way = fields.answer_extraction
    if way == "auto":
        way = "hashes" if "####" in text else "boxed" if boxes(text) else "none"
    if way == "none":
        return text
    if way == "hashes":
        sought, found = "`#### answer`", text.rpartition("####")[2].strip() if "####" in text else ""
        found = found.replace(",", "") if _THOUSANDS.fullmatch(found) else found
    else:
        sought, found = r"`\boxed{answer}`", boxes(text)[-1].content.strip() if boxes(text) else ""
    if not found:
        raise ProblemError(
            f"{place}: field '{fields.answer_field}' has no {sought}: {_show(text[-60:])}.",
            fix=f'Mend the row, or set answer_extraction to another way than "{way}".',
        )
    return found


def _tidy(answer: str) -> str:
    integral = _INTEGRAL.fullmatch(answer)
    return integral[1] if integral else answer


def _show(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str):
        return f"{value[:60]!r}" if value.strip() else "empty"
    return f"{str(value)[:60]} ({type(value).__name__})"
