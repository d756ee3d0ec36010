"""What lm-evaluation-harness needs of sharpen for a task on a local file: problems, prompts and the grader.

`lm_eval_gsm8k.py` writes the task, with a copy of this module beside it.

This module is read by lm-eval, in its own interpreter. It holds no extraction of its own: `sharpen` is judged by sharpen's grader, and the
two others by the filters and the metric of lm-eval's own `gsm8k`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import math_verify  # noqa: F401  # where it is missing, sharpen's grader would call answers wrong that only it can read: say so at the start
import yaml

from sharpen.grading import grade
from sharpen.problems.rows import Fields, to_problems
from sharpen.records import Problem

FILTERS = ("strict-match", "flexible-extract")
METRICS = ("sharpen", *FILTERS)


def problems(dataset: Any) -> Any:
    """The rows that lm-eval read, as sharpen reads them."""
    rows = ((f"row {number}", row) for number, row in enumerate(dataset))
    found = to_problems(rows, Fields(answer_extraction="auto"), name="lm-eval")
    return dataset.add_column("prompt", [one.prompt for one in found]).add_column("gold", [one.answer for one in found])


def chat(doc: Mapping[str, Any]) -> str:
    """What the user says; lm-eval puts the model's chat template around it (`--apply_chat_template`)."""
    return str(doc["prompt"])


def plain(doc: Mapping[str, Any]) -> str:
    """sharpen's template `plain`: the question and a line break."""
    return f"{doc['prompt']}\n"


def gold(doc: Mapping[str, Any]) -> str:
    return str(doc["gold"])


def judge(doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
    """1 for right and 0 for wrong, by each of `METRICS`."""
    [text] = results
    verdict = grade(Problem(id="", prompt=doc["prompt"], answer=doc["gold"], kind="math"), text)
    if verdict.outcome == "unscorable":
        raise ValueError(f"the ground truth {doc['gold']!r} cannot be read: {verdict.reason}")
    return {"sharpen": float(verdict.outcome == "right"), **{name: stock(name, text, doc["answer"]) for name in FILTERS}}


def stock(name: str, text: str, answer: str) -> float:
    """The exact match of lm-eval's own `gsm8k`, after the filter of this name."""
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    task = _stock_task()
    [chosen] = [one for one in task["filter_list"] if one["name"] == name]
    [regex] = [{key: value for key, value in one.items() if key != "function"} for one in chosen["filter"] if one["function"] == "regex"]
    [[extracted]] = RegexFilter(**regex).apply([[text]], [{}])
    [metric] = task["metric_list"]
    options = {key: value for key, value in metric.items() if key not in ("metric", "aggregation", "higher_is_better")}
    return float(exact_match_hf_evaluate(predictions=[extracted], references=[answer], **options)["exact_match"])


@functools.cache
def _stock_task() -> dict[str, Any]:
    import lm_eval

    path = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found
