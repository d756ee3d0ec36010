"""The same model on the same problems in sharpen and in lm-evaluation-harness: is what they write the same, and the accuracy?

    python benchmarks/lm_eval_gsm8k.py --model runs/quickstart/model --problems 32 --lm-eval-python /somewhere/lm-eval/bin/python

Both decode greedily, from the same prompts (the model's chat template, or `--template plain`), up to the same number of new tokens and
the same stops, with weights of the same type. lm-eval reads the file with the `json` loader of `datasets`, without the network. It judges
by sharpen's grader (`lm_eval_task.py`), and beside it by the two filters of its own `gsm8k`. docs/other-harnesses.md has the rest.

`--write-task FOLDER` only writes the task, to be run with `lm_eval run --include_path FOLDER --tasks sharpen_gsm8k ...`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import environment, environment_of_worker, finish, here, settings_of, table

TASK = "sharpen_gsm8k"
METRICS = ("sharpen", "strict-match", "flexible-extract")  # as in lm_eval_task.py, which is read in lm-eval's interpreter


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A completion and whether it is right, by each way of judging it."""

    text: str
    right: Mapping[str, bool]


# --- the task ------------------------------------------------------------------------------------------------------------------------


def write_task(folder: Path, file: Path, *, template: str, stops: Sequence[str], new: int) -> Path:
    """Write a task for lm-eval into a folder.

    Args:
        folder: is made; `--include_path` of lm-eval.
        file: JSON lines with `question` and `answer`, as GSM8K's.
        template: `chat` or `plain`.
        stops: the texts of the tokens that end a completion.
        new: tokens of a completion at most.

    Returns:
        The task's file.
    """
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(here("lm_eval_task.py"), folder)
    task = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file.resolve())}},
        "test_split": "test",
        "output_type": "generate_until",
        "num_fewshot": 0,
        # A model's generation_config.json may ask for more than greedy decoding, and lm-eval does what it says.
        "generation_kwargs": {
            "until": list(stops),
            "max_gen_toks": new,
            "do_sample": False,
            "temperature": 0.0,
            "repetition_penalty": 1.0,
            "no_repeat_ngram_size": 0,
        },
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in METRICS],
        "metadata": {"version": 1.0},
    }
    functions = {"process_docs": "problems", "doc_to_text": template, "doc_to_target": "gold", "process_results": "judge"}
    lines = [f"{key}: !function lm_eval_task.{name}\n" for key, name in functions.items()]
    path = folder / f"{TASK}.yaml"
    path.write_text(yaml.safe_dump(task, sort_keys=False, allow_unicode=True) + "".join(lines), encoding="utf-8")
    return path


def stops_of(model: str) -> list[str]:
    """The texts of the tokens that end a completion of this model."""
    from sharpen.models.loading import load

    loaded = load(model, dtype="float32", device="cpu")
    return [loaded.tokenizer.decode([one]) for one in loaded.stop_ids]


# --- the two sides -------------------------------------------------------------------------------------------------------------------


def ours(args: argparse.Namespace, file: Path, folder: Path) -> list[Answer]:
    """What `sharpen eval` makes of the first problems, in their order."""
    from transformers import AutoTokenizer

    from sharpen.models.loading import find_folder
    from sharpen.pipelines.evaluate import evaluate_model, source_from_text
    from sharpen.problems.templates import Template
    from sharpen.tracking import completions

    found = evaluate_model(
        args.model, source_from_text(str(file)), samples=1, ks=[1], temperature=0.0, max_new_tokens=args.new, limit=args.problems,
        require_stop=False, template=Template(name=args.template), max_rows=args.batch_size, dtype=args.dtype, device=args.device,
        output=folder,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(find_folder(args.model))

    def text(row: Mapping[str, Any]) -> str:
        # lm-eval decodes without special tokens.
        tokens = row["tokens"][:-1] if row["finish_reason"] == "stop" else row["tokens"]
        decoded: str = tokenizer.decode(tokens, skip_special_tokens=True)
        return decoded

    rows = completions.read(found.folder / "completions.parquet")
    return [Answer(text=text(row), right={"sharpen": row["correct"]}) for row in rows]


def theirs(args: argparse.Namespace, task: Path, folder: Path) -> list[Answer]:
    """What lm-eval makes of them, in their order.

    Raises:
        RuntimeError: it failed; with the end of what it wrote.
    """
    from sharpen.models.loading import find_folder

    command = [
        args.lm_eval_python, "-m", "lm_eval", "run", "--model", "hf",
        "--model_args", f"pretrained={find_folder(args.model)},dtype={args.dtype}", "--tasks", TASK, "--include_path", str(task.parent),
        "--limit", str(args.problems), "--batch_size", str(args.batch_size), "--device", args.device,
        "--log_samples", "--output_path", str(folder),
    ]  # fmt: skip
    if args.template == "chat":
        command.append("--apply_chat_template")
    with tempfile.TemporaryDirectory() as beside:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(args.threads, Path(beside)))
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    [samples] = folder.rglob(f"samples_{TASK}_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: row["doc_id"])
    return [Answer(text=row["filtered_resps"][0], right={name: row[name] == 1.0 for name in METRICS}) for row in rows]


def _environment(threads: int, beside: Path) -> dict[str, str]:
    """lm-eval's environment: no network, and sharpen, but nothing else that is installed beside sharpen."""
    import sharpen

    (beside / "sharpen").symlink_to(Path(sharpen.__file__).parent, target_is_directory=True)
    path = os.pathsep.join([str(beside), *filter(None, [os.environ.get("PYTHONPATH")])])
    return environment_of_worker(threads) | {"HF_DATASETS_OFFLINE": "1", "PYTHONPATH": path}


# --- side by side --------------------------------------------------------------------------------------------------------------------


def differences(mine: Sequence[Answer], peer: Sequence[Answer]) -> list[dict[str, Any]]:
    """The problems on which the two differ, in text or in verdict: their number, where the texts part, and both verdicts.

    Raises:
        ValueError: they have not the same number of problems.
    """
    found = []
    for number, (one, other) in enumerate(zip(mine, peer, strict=True)):
        if one.text == other.text and one.right["sharpen"] == other.right["sharpen"]:
            continue
        at = next((at for at, pair in enumerate(zip(one.text, other.text, strict=False)) if pair[0] != pair[1]), -1)
        at = min(len(one.text), len(other.text)) if at < 0 else at
        parted = None if one.text == other.text else {"at": at, "sharpen": one.text[at : at + 40], "lm-eval": other.text[at : at + 40]}
        found.append({"problem": number, "parted": parted, "right": {"sharpen": one.right["sharpen"], "lm-eval": other.right["sharpen"]}})
    return found


def accuracy(answers: Sequence[Answer], metric: str = "sharpen") -> float:
    return sum(one.right[metric] for one in answers) / len(answers)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="a Hugging Face folder, such as a run's model/, `embedded` or `tiny`")
    parser.add_argument("--file", default="gsm8k/test.jsonl", help="looked for here and in the folder that SHARPEN_DATA names")
    parser.add_argument("--problems", type=int, default=32, help="the first so many")
    parser.add_argument("--new", type=int, default=256, help="tokens of a completion at most")
    parser.add_argument("--template", choices=("chat", "plain"), default="chat")
    parser.add_argument("--batch-size", type=int, default=16, help="completions decoded at once, on both sides")
    parser.add_argument("--dtype", default="float32", help="of the weights, on both sides")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="CPU threads, on both sides")
    parser.add_argument("--lm-eval-python", default=sys.executable, help="an interpreter that has lm-eval")
    parser.add_argument("--output", type=Path, help="a new folder for what both write; left out, it is not kept")
    parser.add_argument("--write-task", type=Path, metavar="FOLDER", help="only write the task")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


def main() -> None:
    args = options()
    from sharpen.problems.files import find_file

    file, settings = find_file(args.file), {"template": args.template, "stops": stops_of(args.model), "new": args.new}
    if args.write_task is not None:
        print(f"Written: {write_task(args.write_task, file, **settings)}")
        return
    import torch

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.output or Path(temporary)
        task = write_task(folder / "task", file, **settings)
        mine, peer = ours(args, file, folder / "sharpen"), theirs(args, task, folder / "lm-eval")
    apart = differences(mine, peer)
    rows = [("sharpen eval", "sharpen", f"{accuracy(mine):.4f}")]
    rows += [("lm-eval", name, f"{accuracy(peer, name):.4f}") for name in METRICS]
    table(f"{len(mine)} problems, greedy, at most {args.new} new tokens", ["by", "judged by", "accuracy"], rows)
    print(f"{len(mine) - sum(one['parted'] is not None for one in apart)} of {len(mine)} completions are the same text.")
    for one in apart:
        print(json.dumps(one, ensure_ascii=False))
    same = accuracy(mine) == accuracy(peer)
    print("The accuracies are equal." if same else "The accuracies DIFFER.")
    figures = {"sharpen": accuracy(mine), "lm-eval": {name: accuracy(peer, name) for name in METRICS}, "differences": apart}
    finish({"settings": settings_of(args), "results": figures, "environment": environment(args.threads, args.device)}, args.json)
    sys.exit(not same)


if __name__ == "__main__":
    main()
