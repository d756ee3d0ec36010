"""The table of methods, and the page of one."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sharpen.errors import RecipeError, nearest
from sharpen.methods import METHODS, Method

BASELINES = {"group_norm": "group mean, ÷ std", "group_mean": "group mean"}
COEFFICIENTS = {
    "group_norm": "Â_i = (r_i − mean r) / (std r + ε)",
    "group_mean": "Â_i = r_i − mean r",
}
SURROGATES = {"clipped_token": "−min(ρ_t Â_t, clip(ρ_t, 1 − ε_low, 1 + ε_high) Â_t),  ρ_t = π_θ(o_t) / π_old(o_t)"}
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
}


def methods_table() -> Table:
    """Every method as a data source × a reward × a gradient coefficient."""
    table = Table(title="Methods", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    for heading in ("name", "source", "reward", "baseline", "clip", "KL", "reduction", "arXiv"):
        table.add_column(heading, style="cyan" if heading == "name" else "", no_wrap=heading in ("name", "clip", "arXiv"))
    for method in METHODS.values():
        table.add_row(
            method.name,
            method.data_source.replace("_", " "),
            f"{method.reward}, {method.supervision}",
            BASELINES[method.advantage.kind],
            f"{method.surrogate.clip_low:g}/{method.surrogate.clip_high:g}",
            f"{method.kl.estimator} {method.kl.placement.replace('_', ' ')}, {method.kl.coef:g}" if method.needs_reference else "none",
            method.reduction.replace("-", " "),
            method.source.partition(" ")[0].removeprefix("arXiv:"),
        )
    table.caption = "∇J = E_(q,o)~source [ reduce_t coefficient · ∇ log π_θ(o_t | q, o_<t) ]\nOne of them: sharpen methods NAME"
    table.caption_justify = "left"
    return table


def method_page(name: str) -> Group:
    """One method: its equations and its settings."""
    if name not in METHODS:
        raise RecipeError(f"method '{name}': unknown.{nearest(name, METHODS)}", fix=f"Known are {', '.join(METHODS)}.")
    method = METHODS[name]
    settings = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    settings.add_column(style="cyan", no_wrap=True)
    settings.add_column(no_wrap=True)
    settings.add_column(style="dim")
    for key, value, meaning in _settings(method):
        settings.add_row(key, value, meaning)
    return Group(
        Text(f"{method.name} — {method.title}", style="bold"),
        Text(method.source, style="dim"),
        Text(""),
        *[Text(line) for line in _equations(method)],
        Text(""),
        Text("Settings of [method] in a recipe", style="bold"),
        settings,
    )


def _equations(method: Method) -> list[str]:
    loss = "ℓ_t = " + SURROGATES[method.surrogate.kind]
    coefficient = "coefficient = ρ_t Â_t where not clipped, else 0"
    if method.needs_reference:
        value, derivative = KLS[method.kl.estimator]
        loss += f"  +  β ({value})"
        coefficient += f"  −  β ({derivative})"
    return [
        f"advantage    {COEFFICIENTS[method.advantage.kind]}",
        f"loss         {loss}",
        f"gradient     {coefficient}",
        f"reduction    {REDUCTIONS[method.reduction]}",
    ]


def _settings(method: Method) -> list[tuple[str, str, str]]:
    return [
        ("kl_coef", f"{method.kl.coef:g}", "β; 0 keeps no reference"),
        ("clip_low", f"{method.surrogate.clip_low:g}", "ε below 1"),
        ("clip_high", f"{method.surrogate.clip_high:g}", "ε above 1; 1 and more are allowed"),
        ("ddof", f"{method.advantage.ddof}", "of the group's deviation: 1 the sample's, 0 the population's"),
        ("eps", f"{method.advantage.eps:g}", "added to the deviation"),
    ]
