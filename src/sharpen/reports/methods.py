"""The table of methods, and the page of one."""

from __future__ import annotations

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from sharpen.errors import RecipeError, nearest
from sharpen.methods import METHODS, Method
from sharpen.recipe import MethodSettings, setting_of, used_settings

SOURCES = {"demonstrations": "demonstrations", "sft_policy": "SFT policy, once", "current_policy": "policy"}
BASELINES = {
    "constant": "–",
    "reward": "none",
    "accept": "–",
    "group_norm": "group mean, ÷ std",
    "group_mean": "group mean",
    "leave_one_out": "mean of the others",
    "batch_norm": "batch mean, ÷ std",
    "process": "mean of the group's steps, ÷ std",
    "gae": "value model",
    "preference": "the other of a pair",
}
ADVANTAGES = {
    "constant": "Â = 1",
    "reward": "Â_i = r_i",
    "accept": "Â_i = 1 where r_i ≥ accept, else 0",
    "group_norm": "Â_i = (r_i − mean r) / (std r + ε)",
    "group_mean": "Â_i = r_i − mean r",
    "leave_one_out": "Â_i = r_i − mean of the others' r",
    "batch_norm": "Â_t = (R_t − mean R) / (std R + ε),  R_t = Σ_(s≥t) r_s",
    "process": "Â_(i,t) = Σ_(steps j that end at t or later) (r_ij − mean) / (std + ε)",
    "gae": "Â_t = Σ_l (γλ)^l δ_(t+l),  δ_t = r_t + γ V(s_(t+1)) − V(s_t)",
    "preference": "Â = +1 for the preferred of a pair, −1 for the other",
}
SURROGATES = {
    "logprob": ("−Â_t log π_θ(o_t)", "Â_t"),
    "clipped_token": (
        "−min(ρ_t Â_t, clip(ρ_t, 1 − ε_low, 1 + ε_high) Â_t),  ρ_t = π_θ(o_t) / π_old(o_t)",
        "ρ_t Â_t where not clipped, else 0",
    ),
    "clipped_sequence": (
        "−min(s Â, clip(s, 1 − ε_low, 1 + ε_high) Â),  s = (π_θ(o) / π_old(o))^(1/|o|)",
        "s Â where not clipped, else 0",
    ),
    "clipped_weight": ("−sg[clip(ρ_t, 1 − ε_low, 1 + ε_high)] Â_t log π_θ(o_t)", "clip(ρ_t, 1 − ε_low, 1 + ε_high) Â_t"),
    "pairwise": ("−log σ(h),  h = β (Σ_t log π_θ/π_ref (o⁺_t) − Σ_t log π_θ/π_ref (o⁻_t))", "β σ(−h) Â"),
}
SHORT = {"logprob": "Â", "clipped_token": "ρ Â", "clipped_sequence": "s Â", "clipped_weight": "clip(ρ) Â", "pairwise": "± β σ(−h)"}
KLS = {
    "k1": ("log(π_θ/π_ref)", "1"),
    "k2": ("½ log²(π_θ/π_ref)", "log(π_θ/π_ref)"),
    "k3": ("π_ref/π_θ − log(π_ref/π_θ) − 1", "1 − π_ref/π_θ"),
}
REDUCTIONS = {
    "seq-mean-token-mean": "mean over completions of the mean over each one's tokens",
    "token-mean": "mean over all tokens",
    "seq-mean-token-sum-norm": "mean over completions of the token sum over a constant length",
    "sequence-sum": "mean over completions of the token sum",
    "pair-mean": "mean over pairs",
}


WIDE = 140
"""Columns of a terminal that holds the whole table; a narrower one gets it in two."""


def methods_tables(width: int) -> list[Table]:
    """Every method as a data source × a reward × a gradient coefficient, in one table or, for a narrow terminal, in two."""
    columns = {
        "source": lambda m: SOURCES[m.data_source],
        "reward": lambda m: m.reward if m.supervision == "outcome" else f"{m.reward}, each step",
        "baseline": lambda m: BASELINES[m.advantage.kind],
        "coefficient": _coefficient,
        "clip": lambda m: f"{m.surrogate.clip_low:g}/{m.surrogate.clip_high:g}" if m.surrogate.kind.startswith("clipped") else "–",
        "KL": lambda m: f"{m.kl.estimator} {m.kl.placement.replace('_', ' ')}, {m.kl.coef:g}" if m.kl.used else "–",
        "reduction": lambda m: m.reduction.replace("-", " "),
        "paper": lambda m: m.source.partition(";")[0].partition(" ")[0].rstrip(",").removeprefix("arXiv:"),
    }
    names = list(columns)
    parts = [names] if width >= WIDE else [["source", "reward", "baseline", "paper"], ["coefficient", "clip", "KL", "reduction"]]
    tables = []
    for part in parts:
        table = Table(box=box.HORIZONTALS, show_edge=False, padding=(0, 1, 0, 0))
        for heading in ("name", *part):
            table.add_column(heading, style="cyan" if heading == "name" else "", no_wrap=heading in ("name", "clip", "coefficient"))
        for method in METHODS.values():
            table.add_row(method.name, *(columns[heading](method) for heading in part))
        tables.append(table)
    tables[-1].caption = "∇J = E_(q,o)~source [ reduce_t coefficient · ∇ log π_θ(o_t | q, o_<t) ]\nOne of them: sharpen methods NAME"
    tables[-1].caption_justify = "left"
    return tables


def method_page(name: str) -> Group:
    """One method: its equations and its settings."""
    if name not in METHODS:
        raise RecipeError(f"method '{name}': unknown.{nearest(name, METHODS)}", fix=f"Known are {', '.join(METHODS)}.")
    method = METHODS[name]
    settings = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    settings.add_column(style="cyan", no_wrap=True)
    settings.add_column(no_wrap=True)
    settings.add_column(style="dim")
    for key in used_settings(method):
        value = setting_of(method, key)
        settings.add_row(key, "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value), _meaning(key))
    equations = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    equations.add_column(no_wrap=True)
    equations.add_column()
    for label, text in _equations(method):
        equations.add_row(label, text)
    return Group(
        Text(f"{method.name} — {method.title}", style="bold"),
        Text(method.source, style="dim"),
        Text(""),
        equations,
        Text(""),
        Text("Settings of [method] in a recipe", style="bold"),
        settings,
    )


def _coefficient(method: Method) -> str:
    penalised = method.kl.used and method.kl.placement == "in_loss"
    return SHORT[method.surrogate.kind] + (" − β k'" if penalised else "")


def _equations(method: Method) -> list[tuple[str, str]]:
    loss, coefficient = SURROGATES[method.surrogate.kind]
    advantage = ADVANTAGES[method.advantage.kind]
    if method.kl.used:
        value, derivative = KLS[method.kl.estimator]
        if method.kl.placement == "in_loss":
            loss += f"  +  β ({value})"
            coefficient += f"  −  β ({derivative})"
        else:
            advantage += f";  each token's reward is less by β {value}"
    lines = [
        ("completions", f"from {SOURCES[method.data_source]}".replace("from policy", "from the policy as it is").replace("SFT", "the SFT")),
        ("advantage", advantage),
        ("loss", f"ℓ_t = {loss}"),
        ("coefficient", coefficient),
        ("reduction", REDUCTIONS[method.reduction]),
        ("estimates", method.target),
    ]
    if method.value is not None:
        clip = "" if method.value.clip is None else f", V kept within {method.value.clip:g} of its old value"
        lines.insert(4, ("value model", f"½ (V(s_t) − R_t)²{clip};  R_t = Â_t + V(s_t)"))
    return lines


def _meaning(key: str) -> str:
    return MethodSettings.model_fields[key].description or ""
