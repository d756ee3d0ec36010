"""What the metrics of a step are called, measured in and mean; in the order in which a person looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric as it is shown.

    Attributes:
        source: its name in `events.jsonl`.
        key: a name for files.
        title: above its plot.
        unit: of the values shown.
        note: what it means.
        of: the value shown, from the one in the file.
        floor: whether its axis begins at 0.
    """

    source: str
    key: str
    title: str
    unit: str = ""
    note: str = ""
    of: Callable[[float], float] = float
    floor: bool = False


def _percent(value: float) -> float:
    return 100 * value


def _rest(value: float) -> float:
    return 100 * (1 - value)


KNOWN: tuple[Metric, ...] = (
    Metric(source="reward", key="reward", title="Reward", note="The mean over scorable completions of the weighted sum of the parts."),
    Metric(source="pass_rate", key="accuracy", title="Accuracy", unit="%", of=_percent, floor=True,
           note="Completions that are right by the problem's own grader."),
    Metric(source="reward_gap", key="reward_gap", title="Gap of the learned reward", unit="points", of=_percent,
           note="The reward model's mean probability less the share that is right by the rule, on the same completions. It opens where the "
           "reward is gamed."),
    Metric(source="kl", key="kl", title="KL divergence from the reference", unit="nats a token", floor=True,
           note="0 before the first update. Without a KL term no reference is compared with."),
    Metric(source="entropy", key="entropy", title="Entropy", unit="nats a token", floor=True,
           note="Of the policy, over the completions that it learns from."),
    Metric(source="length", key="length", title="Length", unit="tokens", floor=True, note="The mean over completions."),
    Metric(source="grad_norm", key="grad_norm", title="Gradient norm", floor=True, note="Before it is clipped."),
    Metric(source="clip_fraction", key="clip_fraction", title="Clip fraction", unit="% of tokens", of=_percent, floor=True,
           note="0 with one update a rollout: the policy is still the old policy, and every ratio is 1."),
    Metric(source="engine_gap", key="mismatch", title="Mismatch of engine and trainer", unit="nats a token", floor=True,
           note="The mean absolute gap between the two log-probabilities of the same tokens."),
    Metric(source="engine_gap_max", key="mismatch_max", title="Largest mismatch of a token", unit="nats", floor=True),
    Metric(source="zero_variance", key="zero_variance", title="Groups of equal rewards", unit="%", of=_percent, floor=True,
           note="They have no advantage and teach nothing."),
    Metric(source="finished", key="truncation", title="Truncation", unit="%", of=_rest, floor=True,
           note="Completions that the length limit cut."),
    Metric(source="ratio", key="ratio", title="Importance ratio", note="The mean of π_θ/π_old over tokens; its expectation is 1."),
    Metric(source="loss", key="loss", title="Loss",
           note="Near 0 on-policy, since advantages sum to 0 in each group; its gradient is not."),
    Metric(source="trained_share", key="trained_share", title="Completions with a gradient", unit="%", of=_percent, floor=True),
    Metric(source="learning_rate", key="learning_rate", title="Learning rate", floor=True),
    Metric(source="value_loss", key="value_loss", title="Value model: loss", floor=True),
    Metric(source="value_error", key="value_error", title="Value model: squared error", floor=True),
    Metric(source="value", key="value", title="Value model: mean value"),
    Metric(source="return", key="return", title="Mean return"),
    Metric(source="value_grad_norm", key="value_grad_norm", title="Value model: gradient norm", floor=True),
    Metric(source="value_learning_rate", key="value_learning_rate", title="Value model: learning rate", floor=True),
    Metric(source="unscorable", key="unscorable", title="Unscorable completions", unit="a step", floor=True),
    Metric(source="replaced_groups", key="replaced_groups", title="Groups sampled anew", unit="a step", floor=True,
           note="Groups without variance that gave way to others (rollout.refills)."),
    Metric(source="age", key="age", title="Age of the completions", unit="steps", floor=True,
           note="Steps between the policy that sampled and the one that learns."),
    Metric(source="updates", key="updates", title="Updates so far", floor=True),
    Metric(source="total_completions", key="total_completions", title="Completions so far", floor=True),
    Metric(source="total_tokens", key="total_tokens", title="Tokens so far", floor=True),
)  # fmt: skip


def ordered(names: Iterable[str]) -> list[Metric]:
    """The metrics of these names: known ones first, parts of the reward after the reward, all others last as they are."""
    left = dict.fromkeys(names)
    out: list[Metric] = []
    for metric in KNOWN:
        if metric.source in left:
            del left[metric.source]
            out.append(metric)
            if metric.source == "reward":
                out += [_part(name) for name in left if name.startswith("reward/")]
    return [*out, *(_part(name) for name in left if not name.startswith("reward/"))]


def _part(name: str) -> Metric:
    kind, _, rest = name.partition("/")
    title = {"reward": f"Reward: {rest}", "log": f"Logged: {rest}"}.get(kind, name) if rest else name
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in name)
    return Metric(source=name, key=safe, title=title)
