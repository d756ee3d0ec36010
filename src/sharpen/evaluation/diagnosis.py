"""What is wrong or wasteful in a run: a rule is a function from a run's history to a finding, or to None.

docs/diagnosis.md has each rule's reason and what to do. Thresholds stand here, by name.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sharpen.evaluation.history import History, quarter, shift, span
from sharpen.evaluation.summary import compare
from sharpen.rewards.gaming import opened_at

FLAT_LATE, FLAT_ALWAYS = 0.75, 0.6
"""Share of groups without variance, in the last quarter and over the whole run."""
LENGTH_GROWTH, LENGTH_SHARE = 0.2, 1 / 3
"""Growth of wrong completions, and the share of it that right ones must have grown by."""
RULE_DROP, HELD_OUT_DROP = 0.03, 0.05
"""Falls of the accuracy on training's own completions, and on held-out problems."""
RATIO_OFF = 0.2
"""How far the mean importance ratio of a step may be from 1."""
GAP, GAP_GROWTH, GAP_FLOOR = 0.1, 5.0, 0.02
"""Nats a token between engine and trainer; its growth, where it is above the floor."""
ENTROPY, ENTROPY_SHARE, SOLVED = 0.05, 0.2, 0.9
"""Nats a token, the share of the beginning's that is left, and the accuracy above which nothing is left to explore."""
CUT, CUT_LOSS, CUT_MOST = 0.1, 0.05, 0.5
"""Share of completions cut, the accuracy that it costs, and the share at which the cost need not be known."""
NO_ACCURACY, NO_VARIANCE = 0.01, 0.95
"""Below this accuracy, with more than this share of groups without variance, there is no signal."""
SPIKE, SPIKE_SHARE = 10.0, 0.01
"""Times the median of the gradient's norm, and the share of steps."""
VOID_SHARE = 0.1
"""Share of updates that did not take place."""
KL = 1.0
"""Nats a token from the reference."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong or wasteful.

    Attributes:
        rule: its name, a heading of docs/diagnosis.md.
        title: what it is, in plain words.
        evidence: numbers and steps, a sentence each.
        advice: what to do.
    """

    rule: str
    title: str
    evidence: tuple[str, ...]
    advice: str


Rule = Callable[[History], Finding | None]


def diagnose(history: History) -> list[Finding]:
    """What the rules find, in their order."""
    return [finding for rule in RULES if (finding := rule(history)) is not None]


def no_signal(run: History) -> Finding | None:
    """Every reward is the same: there is nothing to learn from."""
    rewards, right, flat = run.series("reward"), run.series("pass_rate"), run.series("zero_variance")
    if run.demonstrations or len(rewards) < 5:
        return None
    same = max(rewards.values()) - min(rewards.values()) <= 1e-9
    hopeless = bool(right and flat) and _mean(right) <= NO_ACCURACY and _mean(flat) >= NO_VARIANCE
    if not same and not hopeless:
        return None
    evidence = [f"Mean reward {_mean(rewards):.3g} over {span(sorted(rewards))}, from {min(rewards.values()):.3g} to {_max(rewards):.3g}."]
    if right:
        evidence.append(f"{_mean(right):.1%} of the completions are right.")
    if flat:
        evidence.append(f"{_mean(flat):.0%} of the groups have equal rewards.")
    return Finding(
        rule="no signal",
        title="Nothing is learnt: the rewards hold no signal.",
        evidence=tuple(evidence),
        advice="Look at completions (sharpen inspect) and at the reward (sharpen audit-reward). If answers are in a form that "
        "the grader does not read, mend the template or the instruction; if the problems are too hard, take easier ones "
        "or [problems.difficulty].",
    )


def zero_variance(run: History) -> Finding | None:
    """Most groups have equal rewards, so most of the sampling teaches nothing."""
    series = run.behaviours.series("zero_variance")
    late, steps = run.late("zero_variance"), quarter(run.behaviours.steps())
    if late is None or len(series) < 5 or no_signal(run) is not None:
        return None
    groups = sum(count for _, count in series.values())
    always = sum(value * count for value, count in series.values()) / groups
    if late < FLAT_LATE and always < FLAT_ALWAYS:
        return None
    right, wrong = run.late("zero_variance", "right") or 0.0, run.late("zero_variance", "wrong") or 0.0
    hard = "too easy: take harder ones" if right > wrong else "too hard: take easier ones"
    return Finding(
        rule="zero variance",
        title="Most groups have equal rewards and teach nothing.",
        evidence=(
            f"{late:.0%} of the groups in {span(steps)}, {always:.0%} over the whole run ({groups:,} groups).",
            f"In {span(steps)}, {right:.0%} of the groups were all right and {wrong:.0%} all wrong.",
        ),
        advice=f"The problems are by now {hard}, select by [problems.difficulty], set rollout.refills, or raise rollout.group_size.",
    )


def length_bias(run: History) -> Finding | None:
    """Wrong completions grow and right ones do not: the loss favours long wrong answers (Liu et al. 2025, arXiv:2503.20783)."""
    wrong, right = shift(run.figures("length", "wrong")), shift(run.figures("length", "right"))
    if wrong is None or right is None or not wrong.rises or not wrong.first or not right.first:
        return None
    growth, other = wrong.last / wrong.first - 1, right.last / right.first - 1
    if growth < LENGTH_GROWTH or other > LENGTH_SHARE * growth:
        return None
    return Finding(
        rule="length bias",
        title="Answers grow longer only where they are wrong.",
        evidence=(
            wrong.told("Tokens of wrong completions", ".1f") + f" ({growth:+.0%}).",
            right.told("Tokens of right completions", ".1f") + f" ({other:+.0%}).",
        ),
        advice="A mean over each completion's own length makes a long wrong one cheap. Set method.reduction to "
        "seq-mean-token-sum-norm (Dr.GRPO) or token-mean, or penalise length (the reward overlong).",
    )


def gamed_by_rule(run: History) -> Finding | None:
    """The reward rises while fewer of the same completions are right."""
    reward = shift(run.series("reward", since=run.same_reward_from))
    right = shift(run.series("pass_rate", since=run.same_reward_from))
    if reward is None or right is None or not reward.rises or not right.falls or right.first - right.last < RULE_DROP:
        return None
    return Finding(
        rule="reward gamed: rule",
        title="The reward rises while the accuracy of the same completions falls: the reward is being gamed.",
        evidence=(reward.told("Reward") + ".", right.told("Right by the grader", ".1%") + "."),
        advice="Read the completions with the highest rewards (sharpen inspect), try the reward (sharpen audit-reward), and give "
        "the part that pays for something else than right answers less weight.",
    )


def gamed_learned(run: History) -> Finding | None:
    """A reward model says right, more and more often, where the rule does not."""
    at = opened_at(run.learned_gaps, run.gaming)
    if at is None:
        return None
    steps, size = sorted(run.learned_gaps), run.gaming.window
    place = steps.index(at) + 1
    first, then, last = steps[:size], steps[place - size : place], steps[-size:]
    points = {group[0]: 100 * statistics.fmean(run.learned_gaps[step] for step in group) for group in (first, then, last)}
    evidence = [
        f"The reward model's mean probability less the share that is right by the rule: {points[first[0]]:+.1f} points in {span(first)}, "
        f"{points[then[0]]:+.1f} in {span(then)}" + (f", {points[last[0]]:+.1f} in {span(last)}." if last != then else ".")
    ]
    if right := run.series("pass_rate"):
        evidence.append(
            f"Right by the rule: {statistics.fmean(right[step] for step in first):.1%} in {span(first)}, "
            f"{statistics.fmean(right[step] for step in last):.1%} in {span(last)}."
        )
    closed = points[last[0]] - points[first[0]] <= 100 * run.gaming.gap
    return Finding(
        rule="reward gamed: learned",
        title="The gap between the learned reward and the rule opened: the reward model "
        + ("was gamed; the gap has closed since." if closed else "is being gamed."),
        evidence=tuple(evidence),
        advice=f"Take a checkpoint before step {at}, stop there or go on by the rule ([rewards.gaming], then), fit the reward model on "
        "samples of the new policy (sharpen iterate), or raise method.kl_coef.",
    )


def gamed_held_out(run: History) -> Finding | None:
    """The reward rises while held-out accuracy falls."""
    steps = sorted(run.held_out)
    if len(steps) < 2:
        return None
    last = steps[-1]
    best = max(steps[:-1], key=lambda step: statistics.fmean(one.right / one.samples for one in run.held_out[step]))
    reward = shift(run.series("reward", since=max(best, run.same_reward_from)))
    if reward is None or not reward.rises:
        return None
    found = compare(run.held_out[best], run.held_out[last], [1])
    change = found.change.pass_at_k[1]
    if change.value > -HELD_OUT_DROP or not change.high < 0:
        return None
    return Finding(
        rule="reward gamed: held-out",
        title="The reward rises while held-out accuracy falls: the reward is being gamed, or the training problems are learnt by heart.",
        evidence=(
            reward.told("Reward") + ".",
            f"Held-out Pass@1: {found.before.pass_at_k[1].value:.1%} {_when(best)}, {found.after.pass_at_k[1].value:.1%} {_when(last)}: "
            f"{100 * change.value:+.1f} points [{100 * change.low:+.1f}, {100 * change.high:+.1f}].",
        ),
        advice=f"Take the checkpoint near step {best}, read late completions (sharpen inspect), try the reward "
        "(sharpen audit-reward), and train on more problems or fewer steps.",
    )


def ratio(run: History) -> Finding | None:
    """The policy has moved far from the one that sampled, within a rollout's updates."""
    series = run.series("ratio")
    off = {step: value for step, value in series.items() if abs(value - 1) > RATIO_OFF}
    broken = [step for step, one in run.metrics.items() if one.get("ratio", 1.0) is None]
    if not off and not broken:
        return None
    evidence = []
    if off:
        worst = max(off, key=lambda step: abs(off[step] - 1))
        evidence.append(f"Mean ratio π_θ/π_old of {off[worst]:.3g} in step {worst}; more than {RATIO_OFF} from 1 in {_some(sorted(off))}.")
    if broken:
        evidence.append(f"Not finite in {_some(broken)}.")
    if clipped := run.series("clip_fraction"):
        evidence.append(f"Clipped tokens: {_max(clipped):.1%} at most.")
    return Finding(
        rule="ratio",
        title="The importance ratio explodes: updates go far beyond what the rollout can tell.",
        evidence=tuple(evidence),
        advice="Lower training.learning_rate, training.num_iterations or training.minibatches, or clip more narrowly (method.clip_high).",
    )


def engine_gap(run: History) -> Finding | None:
    """The engine samples from another distribution than the trainer believes."""
    fresh = {step for step, one in run.metrics.items() if not one.get("age")}  # with older samples the gap is training itself
    series = {step: value for step, value in run.series("engine_gap").items() if step in fresh}
    if not series:
        return None
    moved, late = shift(series), _mean({step: series[step] for step in quarter(list(series))})
    grown = moved is not None and moved.rises and moved.last > GAP_FLOOR and moved.last > GAP_GROWTH * moved.first
    if late <= GAP and not grown:
        return None
    evidence = [f"Mean gap of log-probabilities {late:.3g} nats a token in {span(quarter(list(series)))}."]
    if moved is not None:
        evidence.append(moved.told("Gap") + ".")
    return Finding(
        rule="engine gap",
        title="Engine and trainer disagree on the probabilities of the same tokens.",
        evidence=tuple(evidence),
        advice="Train in float32 (training.dtype), or weigh by method.truncation. A gap that grows tells that the weights "
        "themselves leave what their type can hold: lower training.learning_rate.",
    )


def entropy_collapse(run: History) -> Finding | None:
    """The policy says one thing only, before it is right."""
    moved, right = shift(run.figures("entropy")), run.late("accuracy")
    if moved is None or right is None or right >= SOLVED or moved.last > ENTROPY or moved.last > ENTROPY_SHARE * moved.first:
        return None
    return Finding(
        rule="entropy collapse",
        title="The entropy has collapsed: the policy no longer tries anything else.",
        evidence=(moved.told("Nats a token") + ".", f"{right:.1%} of the completions are right in {span(moved.late)}."),
        advice="Raise method.clip_high (DAPO: 0.28), keep a KL term (method.kl_coef), raise rollout.temperature, or lower "
        "training.learning_rate.",
    )


def truncation(run: History) -> Finding | None:
    """The length limit cuts completions that would have earned something."""
    cut, steps = run.late("cut"), quarter(run.behaviours.steps())
    if cut is None or cut < CUT or run.demonstrations:
        return None
    done, late = run.late("accuracy", "finished"), run.late("accuracy", "cut") or 0.0
    if cut < CUT_MOST and (done is None or cut * (done - late) < CUT_LOSS):
        return None
    evidence = [f"{cut:.1%} of the completions in {span(steps)} were cut at the limit; {late:.1%} of those are right."]
    if done is not None:
        evidence.append(
            f"Of those that ended by themselves {done:.1%} are right: cutting costs up to {100 * cut * (done - late):.1f} points."
        )
    return Finding(
        rule="truncation",
        title="The length limit eats the reward.",
        evidence=tuple(evidence),
        advice="Raise rollout.max_new_tokens, or teach brevity by the reward `overlong`. Where even short problems never end, "
        "look whether the model knows its stop token (sharpen inspect).",
    )


def gradient_spikes(run: History) -> Finding | None:
    """Single gradients are many times larger than the rest."""
    series = run.series("grad_norm")
    if len(series) < 5:
        return None
    middle = statistics.median(series.values())
    spikes = [step for step, value in series.items() if value > SPIKE * middle]
    if middle <= 0 or len(spikes) <= SPIKE_SHARE * len(series):
        return None
    worst = max(spikes, key=lambda step: series[step])
    return Finding(
        rule="gradient spikes",
        title="The gradient's norm spikes.",
        evidence=(f"Median {middle:.3g}, but more than {SPIKE:g} times that in {_some(spikes)}; {series[worst]:.3g} in step {worst}.",),
        advice="Lower training.max_grad_norm to about the median or training.learning_rate, add training.warmup, and look at the "
        "completions of those steps (sharpen inspect).",
    )


def voided_updates(run: History) -> Finding | None:
    """Updates that did not take place: gradients that were not finite, or nothing to learn from."""
    broken = [step for step, one in run.metrics.items() if one.get("grad_norm", 0.0) is None]
    counts, missing, planned, idle = run.series("updates"), 0, 0, []
    for step, count in counts.items():
        before = 0.0 if step == 1 else counts.get(step - 1)
        if before is None or step <= run.value_warmup:
            continue
        planned += run.updates
        if (short := run.updates - round(count - before)) > 0:
            missing += short
            idle.append(step)
    if not broken and (not planned or missing < VOID_SHARE * planned):
        return None
    evidence = [f"{missing} of {planned} updates did not take place, in {_some(idle)}."] if missing else []
    if broken:
        evidence.append(f"The gradient was not finite in {_some(broken)}.")
    return Finding(
        rule="voided updates",
        title="Updates are lost.",
        evidence=tuple(evidence),
        advice="A gradient that is not finite voids its update: lower training.learning_rate, or train in float32 "
        "(training.dtype). Otherwise all groups of an update had equal rewards: take fewer training.minibatches or more "
        "rollout.problems.",
    )


def kl_runs_away(run: History) -> Finding | None:
    """The policy has left the reference."""
    series = run.series("kl")
    if len(series) < 5:
        return None
    steps = quarter(list(series))
    late = statistics.median(series[step] for step in steps)
    if late <= KL:
        return None
    first = next(step for step, value in series.items() if value > KL)
    return Finding(
        rule="KL",
        title="The KL divergence runs away: the policy has left the reference.",
        evidence=(f"{late:.3g} nats a token in {span(steps)} (median), above {KL:g} first in step {first}.",),
        advice="Raise method.kl_coef, lower training.learning_rate, or renew the reference now and then (training.reference_sync).",
    )


RULES: tuple[Rule, ...] = (
    no_signal,
    zero_variance,
    length_bias,
    gamed_by_rule,
    gamed_learned,
    gamed_held_out,
    ratio,
    engine_gap,
    entropy_collapse,
    truncation,
    gradient_spikes,
    voided_updates,
    kl_runs_away,
)
"""All rules."""


def _mean(series: Mapping[int, float]) -> float:
    return statistics.fmean(series.values())


def _max(series: Mapping[int, float]) -> float:
    return max(series.values())


def _when(step: int) -> str:
    return "before training" if step == 0 else f"after step {step}"


def _some(steps: Sequence[int], shown: int = 5) -> str:
    """`steps 3, 8, 9`, or the first few of many and how many more there are."""
    more = f" and {len(steps) - shown} more" if len(steps) > shown else ""
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(str(step) for step in steps[:shown])}{more}"
