"""Trying the reward of a recipe on the recipe's own problems."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sharpen.errors import RunError
from sharpen.problems.source import load_problems
from sharpen.recipe import Recipe
from sharpen.rewards.audit import Audit, audit
from sharpen.rewards.score import Scorer
from sharpen.tracking.observer import Observer, Silent

_SHOWN = 2000


def audit_reward(
    recipe: Recipe, *, recipe_path: Path | str, limit: int = 50, step: int | None = None, observer: Observer | None = None
) -> Audit:
    """Try the reward of a recipe with attacks, honest answers, and the answers of other problems.

    Args:
        recipe: the settings; no model is loaded.
        recipe_path: where they were read from; relative files in them are looked for beside it.
        limit: problems of `problems.train`, evenly spread.
        step: of training, whose definition of the reward is tried; the last one when None.
        observer: who watches.

    Raises:
        SharpenError: problems or reward functions that cannot be loaded, or a reward that never tells right from wrong.
    """
    observer, base = observer or Silent(), Path(recipe_path).parent
    problems = load_problems(recipe.problems.train, base=base)
    count = min(limit, len(problems))
    chosen = [problems[place * len(problems) // count] for place in range(count)]
    step = recipe.training.steps if step is None else step
    scorer = Scorer(recipe.rewards.model_copy(update={"fail_fast": False}), base=base, steps=recipe.training.steps)
    observer.phase("auditing the reward", count, "problems")
    return audit(chosen, scorer, recipe.rewards.weights(step), on_progress=observer.advance)


def write_json(found: Audit, path: Path) -> None:
    """Write counts and findings; of a long completion the first 2,000 characters.

    Raises:
        RunError: the file cannot be written.
    """
    table: dict[str, Any] = {
        "problems": found.problems,
        "judging": found.judging,
        "threshold": found.threshold,
        "wrongly_accepted": found.accepted,
        "wrongly_rejected": found.rejected,
        "attacks": {name: asdict(count) for name, count in found.attacks.items()},
        "honest": {name: asdict(count) for name, count in found.honest.items()},
        "findings": [
            asdict(finding)
            | {"completion": finding.completion[:_SHOWN], "reward": finding.reward if finding.reward == finding.reward else None}
            for finding in found.findings
        ],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(table, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"--json {path}: cannot be written: {error}.", fix="Name a file in a folder that can be written to.") from error
