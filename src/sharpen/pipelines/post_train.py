"""The candidate run: a method of `METHODS` on six candidate answers a question, exact enough to prove and quick enough to wait for.

    questions → old policy samples G of each → rewards → method.advantages → method.loss(policy(batch)) → optimiser.step()

The same method, learner and optimiser as any other run. Samples come from the old policy, a copy of the policy that is renewed every
`REFRESH` steps, so that the importance ratios between two renewals are not 1; the reference is the initial policy, which is uniform.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sharpen.errors import RecipeError, RunError, nearest
from sharpen.evaluation.intervals import Estimate
from sharpen.methods import METHODS, Method
from sharpen.models.candidate import CandidatePolicy, CandidateValue
from sharpen.pipelines import parts
from sharpen.pipelines.candidate_task import FIGURES, PARTIAL_CREDIT, CandidateTask, Figures, make_task, measure
from sharpen.problems.candidate_data import WorkedProblems, load_worked
from sharpen.records import Completion, Group, Scores, TrainingBatch
from sharpen.streams import derive
from sharpen.tracking.observer import Observer, Silent
from sharpen.training import batches
from sharpen.training.collect import Collected, summary
from sharpen.training.learner import Critic, Learner
from sharpen.training.optimiser import Optimiser, Schedule
from sharpen.training.problem_stream import ProblemStream
from sharpen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.table import Table

DATASETS = ("gsm8k-candidate",)
REFRESH = 16
"""Steps between two renewals of the old policy; with `QUESTIONS` a step, one pass over 512 questions."""
QUESTIONS = 32
LEARNING_RATE = 0.1
"""For weights that begin at 0 on standardised features and have 300 steps, the rate falling to 0."""
SCHEDULE: Schedule = "linear"
VALUE_LEARNING_RATE = 0.01
"""Of the value model, for a method that has one; constant."""
DECIMALS = 6
"""Of every number in the result's file."""


@dataclass(frozen=True, kw_only=True)
class PostTrainResult:
    """What the candidate run leaves.

    Attributes:
        path: the file that was written.
        data: what is in it.
        seconds: how long the run took; not in the file, which is the same for equal runs.
    """

    path: Path
    data: Mapping[str, Any]
    seconds: float


def post_train(
    algorithm: str = "grpo",
    dataset: str = "gsm8k-candidate",
    maximum_examples: int = 512,
    steps: int = 300,
    group_size: int = 4,
    seed: int = 42,
    offline: bool = False,
    data_dir: Path | None = None,
    output_dir: Path = Path(),
    observer: Observer | None = None,
) -> PostTrainResult:
    """Train the candidate policy and write `classic-post-training-gsm8k-seed{seed}.json`, whole or not at all.

    For another method than GRPO, its name stands before the seed.

    Args:
        algorithm: a method of `METHODS`.
        dataset: `gsm8k-candidate`.
        maximum_examples: questions to train on at most.
        steps: updates, each on `QUESTIONS` questions.
        group_size: G, samples of each, drawn independently.
        seed: of the mistakes in candidates, the order and the samples.
        offline: never ask the hub; without GSM8K, generated questions take its place, and the result says so.
        data_dir: a folder that holds GSM8K; left out, the one that SHARPEN_DATA names.
        output_dir: where the file is written; an earlier one of the same seed is replaced.
        observer: who watches.

    Raises:
        SharpenError: anything given that cannot be used; an earlier file stays as it is.
    """
    start = time.perf_counter()
    observer = observer or Silent()
    method = _checked(algorithm, dataset, maximum_examples=maximum_examples, steps=steps, group_size=group_size)
    path = _claimed(Path(output_dir)) / _name(algorithm, seed)
    observer.phase("reading questions", 0)
    problems = load_worked(data_dir, offline=offline, seed=seed, generated=maximum_examples)
    if problems.name == "generated":
        observer.notice(
            "GSM8K was not found and the hub is not asked offline: generated word problems stand in, whose figures say nothing of it"
        )
    observer.phase("making candidates", 0)
    task = make_task(problems, maximum=maximum_examples, seed=seed)
    observer.notice(f"{problems.origin}: {task.trained} questions to train on, {len(task.held_out)} held out")
    with _one_thread():
        run = CandidateRun(task, method, steps=steps, group_size=group_size, seed=seed)
        before = measure(task, run.policy, run.reference, seed=seed)
        last = run.train(observer)
        after = measure(task, run.policy, run.reference, seed=seed)
    data = _data(problems, run, before, after, last)
    data["settings"] |= {"algorithm": algorithm, "dataset": dataset, "maximum_examples": maximum_examples}
    try:
        RunFolder(path.parent).write_json(path, _rounded(data))
    except OSError as error:
        raise RunError(f"output_dir {path.parent}: cannot be written: {error}.", fix="Choose a folder that you may write.") from error
    return PostTrainResult(path=path, data=_rounded(data), seconds=time.perf_counter() - start)


class CandidateRun:
    """A candidate policy being trained.

    Args:
        task: questions, features and rewards.
        method: how.
        steps: updates.
        group_size: G.
        seed: the run's.
    """

    def __init__(self, task: CandidateTask, method: Method, *, steps: int, group_size: int, seed: int) -> None:
        self.task, self.method, self.steps, self.group_size, self.seed = task, method, steps, group_size, seed
        self.policy = CandidatePolicy(task.features)
        self.reference = self.policy.frozen_copy()
        self.old = self.policy.frozen_copy()
        self.refreshes = 0
        self.clip_fractions: list[float] = []
        self.places = {question.problem.id: place for place, question in enumerate(task.questions[: task.trained])}
        self.stream = ProblemStream([question.problem for question in task.questions[: task.trained]], seed)
        self.critic = _critic(task) if method.value is not None else None
        self.learner = Learner(
            policy=self.policy,
            reference=self.reference if method.needs_reference else None,
            method=method,
            optimiser=Optimiser(self.policy.module.named_parameters(), learning_rate=LEARNING_RATE, total=steps, schedule=SCHEDULE),
            temperature=1.0,
            token_budget=QUESTIONS * (group_size + 1),
            seed=seed,
            critic=self.critic,
        )

    def train(self, observer: Observer) -> dict[str, Any]:
        """Make all updates; what there is to tell of the last one."""
        told: dict[str, Any] = {}
        since, done = time.perf_counter(), 0
        for step in range(1, self.steps + 1):
            groups, scores = self.rollout(step)
            batch = self.learner.prepare(self.batch(groups, scores))
            if step == self.steps:
                told = self.describe(step, groups, scores, batch)
            metrics = self.learner.update(batch, step=step, constant_length=1)
            self.clip_fractions.append(metrics.get("clip_fraction", 0.0))
            if step % REFRESH == 0 and self.method.data_source == "current_policy":
                self.old = self.policy.frozen_copy()
                self.refreshes += 1
            if step in (1, self.steps) or step % REFRESH == 0:
                now = time.perf_counter()
                seconds = (now - since) / (step - done)
                observer.step(
                    step,
                    self.steps,
                    summary(Collected(groups=groups, scores=scores, replaced=0)) | metrics,
                    {"step": seconds, "tokens_per_second": scores.total.numel() / seconds},
                )
                since, done = now, step
        return told

    def rollout(self, step: int) -> tuple[list[Group], Scores]:
        """The step's questions with samples of each, and their rewards.

        G samples from the old policy; for a method that samples once, from the policy before training, the same ones whenever a question
        comes again; for demonstrations, the true solution of G times as many questions.
        """
        shown = self.method.data_source == "demonstrations"
        problems = self.stream.take(QUESTIONS * self.group_size if shown else QUESTIONS)
        places = [self.places[problem.id] for problem in problems]
        if shown:
            chosen = self.task.correct[torch.tensor(places)].long().argmax(dim=1, keepdim=True)
            logprobs = torch.full(chosen.shape, float("nan"), dtype=torch.float64)
        else:
            chosen, logprobs = self.old.sample(places, self._seeds(step, places))
        groups = [
            Group(
                id=f"{step}/{position}/0",
                problem=problem,
                prompt_tokens=(place,),
                completions=tuple(
                    Completion(tokens=(c,), sampling_logprobs=(lp,), text=self.task.questions[place].candidates[c], finish_reason="stop")
                    for c, lp in zip(chosen[position].tolist(), logprobs[position].tolist(), strict=True)
                ),
            )
            for position, (problem, place) in enumerate(zip(problems, places, strict=True))
        ]
        where = torch.tensor(places)[:, None]
        rewards, correct = self.task.rewards[where, chosen], self.task.correct[where, chosen]
        return groups, Scores(total=rewards, parts={"graded": rewards}, correct=correct, answers=())

    def _seeds(self, step: int, places: list[int]) -> list[list[int]]:
        if self.method.data_source == "sft_policy":
            return [[derive(self.seed, "candidate", "once", place, i) for i in range(self.group_size)] for place in places]
        return [[derive(self.seed, "candidate", step, p, 0, i) for i in range(self.group_size)] for p in range(len(places))]

    @torch.no_grad()
    def batch(self, groups: list[Group], scores: Scores) -> TrainingBatch:
        """The step's one minibatch, with the log-probabilities of the policy that sampled it."""
        built = batches.build(groups, scores)
        return replace(built, old_logprobs=self.old.logprobs(built).logprobs)

    @torch.no_grad()
    def describe(self, step: int, groups: list[Group], scores: Scores, batch: TrainingBatch) -> dict[str, Any]:
        """What a step's update is made of: clip fraction and ratios of the whole batch, and one group in full.

        The group is the first whose rewards differ; the first one where there is none. A sample that the method leaves out (one in no
        pair) has no ratio.
        """
        told = self.method.loss(self.policy.logprobs(batch).logprobs, batch)
        shown = next((p for p, row in enumerate(scores.total.tolist()) if len(set(row)) > 1), 0)
        size = len(groups[shown].completions)
        rows = {place: row for row, place in enumerate(batch.place.tolist())} if batch.place is not None else {}
        samples = [completion.tokens[0] for completion in groups[shown].completions]

        def row(values: Tensor, absent: Any) -> list[Any]:
            return [values[rows[place], 0].item() if place in rows else absent for place in range(shown * size, (shown + 1) * size)]

        ratio = told.ratio if len(told.ratio) else torch.ones(1)
        return {
            "step": step,
            "clip_fraction": float(told.clipped.double().mean()) if len(told.clipped) else 0.0,
            "importance_ratio": {"mean": float(ratio.mean()), "min": float(ratio.min()), "max": float(ratio.max())},
            "group": {
                "question": groups[shown].problem.id,
                "samples": samples,
                "origins": [self.task.questions[groups[shown].prompt_tokens[0]].origins[c] for c in samples],
                "rewards": scores.total[shown].tolist(),
                "advantages": row(batch.advantages, 0.0),
                "importance_ratios": row(told.ratio, None),
                "clipped": row(told.clipped, False),
            },
        }


def _critic(task: CandidateTask) -> Critic:
    model = CandidateValue(task.features)
    return Critic(model=model, optimiser=Optimiser(model.module.named_parameters(), learning_rate=VALUE_LEARNING_RATE))


@contextmanager
def _one_thread() -> Iterator[None]:
    """One CPU thread: these tensors are too small to share out, and the order of sums is then the same everywhere."""
    threads = parts.set_threads(None)
    parts.set_threads(1)
    try:
        yield
    finally:
        parts.set_threads(threads)


def summary_table(result: PostTrainResult) -> Table:
    """The figures before and after, for a terminal of 80 columns."""
    from rich import box
    from rich.table import Table

    data = result.data
    questions = data["questions"]
    table = Table(
        title=f"Candidate policy on {data['dataset']}",
        title_style="bold", title_justify="left", caption_style="dim", caption_justify="left",
        caption=(
            f"{questions['train']} questions trained on, {questions['held_out']} held out · 95 % intervals\n"
            "accuracy and mean reward: of the most probable candidate\n"
            f"old policy renewed {data['old_policy_refreshes']} times · value-model parameters {data['value_model_parameters']} · "
            f"clipped {data['mean_clip_fraction']:.1%}\n{result.path} · {result.seconds:.1f} s"
        ),
        box=box.HORIZONTALS, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in FIGURES:
        table.add_row(name.replace("_", " ").replace("kl", "KL"), *(_cell(data[when][name]) for when in ("before", "after", "change")))
    return table


def _cell(value: Mapping[str, float | None]) -> str:
    if value["low"] is None or value["high"] is None:
        return f"{value['value']:.4f}"
    return f"{value['value']:.4f} [{value['low']:.2f}, {value['high']:.2f}]"


def _data(problems: WorkedProblems, run: CandidateRun, before: Figures, after: Figures, last: dict[str, Any]) -> dict[str, Any]:
    """The result's file, but for what was asked for by name."""
    task, seed = run.task, run.seed

    def plain(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
        return {name: estimate.to_dict() for name, estimate in estimates.items()}

    return {
        "dataset": problems.name,
        "questions": {"train": task.trained, "held_out": len(task.held_out), "left_out": task.left_out},
        "settings": {
            "group_size": run.group_size,
            "kl_coef": run.method.kl.coef,
            "learning_rate": LEARNING_RATE,
            "partial_credit": PARTIAL_CREDIT,
            "questions_per_step": QUESTIONS,
            "refresh_every": REFRESH,
            "schedule": SCHEDULE,
            "seed": seed,
            "steps": run.steps,
        },
        "before": {**plain(before.estimates(seed)), "choices": before.choices},
        "after": {**plain(after.estimates(seed)), "choices": after.choices},
        "change": plain(before.changes(after, seed)),
        "last_step": last,
        "mean_clip_fraction": sum(run.clip_fractions) / len(run.clip_fractions),
        "old_policy_refreshes": run.refreshes,
        "value_model_parameters": run.critic.parameters if run.critic is not None else 0,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0  # + 0.0 turns −0.0 into 0.0
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _checked(algorithm: str, dataset: str, *, maximum_examples: int, steps: int, group_size: int) -> Method:
    """The method, with everything that was given found usable."""
    for name, given, known in (("algorithm", algorithm, METHODS), ("dataset", dataset, DATASETS)):
        if given not in known:
            raise RecipeError(f"{name} '{given}': unknown.{nearest(given, known)}", fix=f"Give one of {', '.join(known)}.")
    method = METHODS[algorithm]
    least_group = 2 if method.needs_group else 1
    for name, number, least in (("maximum_examples", maximum_examples, 1), ("steps", steps, 1), ("group_size", group_size, least_group)):
        if number < least:
            why = "; a group of one has no baseline" if name == "group_size" and number == 1 else ""
            raise RecipeError(f"{name}: expected at least {least}, got {number}{why}.", fix=f"Give {name} of {least} or more.")
    return method


def _name(algorithm: str, seed: int) -> str:
    """The result's file; GRPO's has the short name."""
    return f"classic-post-training-gsm8k-{'' if algorithm == 'grpo' else f'{algorithm}-'}seed{seed}.json"


def _claimed(folder: Path) -> Path:
    """The folder, made if it has to be and found writable before any work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".sharpen-writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"output_dir {folder}: cannot be written: {error}.", fix="Choose a folder that you may write.") from error
    return folder
