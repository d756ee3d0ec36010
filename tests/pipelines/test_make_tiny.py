from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from sharpen.errors import ModelError
from sharpen.models import tiny
from sharpen.models.loading import load
from sharpen.models.manifest import file_digest, verify_manifest
from sharpen.pipelines import make_tiny as pipeline
from sharpen.pipelines import parts, tiny_text
from sharpen.pipelines.make_tiny import Plan, TinyModel, make_tiny
from sharpen.pipelines.tiny_training import Fitting, orthogonalise
from sharpen.problems.multi_step import MultiStepSource, generate, is_held_out
from sharpen.tracking.observer import Silent

SMALL = Plan(
    width=32, layers=1, text_steps=4, text_rows=4, demonstration_steps=4, demonstration_rows=4, problems=6, samples=4, max_new_tokens=8
)


class Watcher(Silent):
    def __init__(self) -> None:
        self.notices, self.phases, self.parts = list[str](), list[tuple[str, int, str]](), 0

    def phase(self, name: str, total: int, unit: str = "completions") -> None:
        self.phases.append((name, total, unit))

    def advance(self, count: int) -> None:
        self.parts += count

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARPEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def weights(made: TinyModel) -> str:
    return file_digest(made.folder / "model.safetensors")


def test_the_same_seed_gives_the_same_weights_bit_for_bit() -> None:
    first = weights(make_tiny(plan=SMALL))
    torch.rand(7)  # the global random state is not what it was
    assert weights(make_tiny(plan=SMALL, force=True)) == first
    assert weights(make_tiny(seed=1, plan=SMALL)) != first


def test_the_number_of_threads_does_not_change_the_weights_and_stays() -> None:
    first = weights(make_tiny(plan=SMALL))
    torch.set_num_threads(1)
    try:
        assert weights(make_tiny(plan=SMALL, force=True)) == first
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(2)


def test_it_is_made_once_and_measured(cache: Path) -> None:
    watcher = Watcher()
    made = make_tiny(plan=SMALL, observer=watcher)
    assert made.new
    assert made.folder == cache / "models" / f"tiny-{tiny.VERSION}-seed0"
    assert set(made.pass_at_k) == {1, 4}
    assert made.parameters == sum(weight.numel() for weight in load("tiny", device="cpu").model.parameters())
    assert verify_manifest(made.folder) == []
    assert [(total, unit) for _, total, unit in watcher.phases] == [(4, "steps"), (4, "steps"), (24, "completions")]
    assert watcher.parts == 32
    assert make_tiny(plan=SMALL) == replace(made, new=False)


def test_a_damaged_one_is_made_again() -> None:
    made = make_tiny(plan=SMALL)
    whole = weights(made)
    (made.folder / "model.safetensors").write_bytes(b"")
    again = make_tiny(plan=SMALL)
    assert again.new
    assert weights(again) == whole


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SHARPEN_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="SHARPEN_CACHE"):
        make_tiny(plan=SMALL)


def test_ensuring_a_model_makes_the_tiny_one_with_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "Plan", lambda: SMALL)
    watcher = Watcher()
    parts.ensure_model("tiny:2", watcher)
    assert tiny.is_made(2)
    assert "making it" in watcher.notices[0] and "Pass@4" in watcher.notices[1]
    parts.ensure_model("tiny:2", watcher)
    parts.ensure_model("embedded", watcher)
    assert len(watcher.notices) == 2


def test_nothing_held_out_is_read_or_shown() -> None:
    held_out = {problem.prompt for problem in generate(MultiStepSource(split="held_out", count=600))}
    for stream in ("text", "demonstrations"):
        items = list(islice(tiny_text.problems(0, stream), 3000))
        assert not any(is_held_out(item.key) for item in items)
        assert not held_out & {item.question for item in items}


def test_the_text_is_equations_and_the_demonstrations_learn_the_solution_only() -> None:
    tokenizer = tiny.new_tokenizer()
    tokens, mask = next(tiny_text.text(tokenizer, 0, 3))
    assert tokens.shape == mask.shape == (3, tiny_text.ROW)
    assert bool(mask.all())
    lines = tokenizer.decode(tokens.flatten()).split("\n")[:-1]
    assert all(eval(line.replace("=", "==")) for line in lines)
    tokens, mask = next(tiny_text.demonstrations(tokenizer, 0, 6))
    for row, learned, item in zip(tokens, mask, tiny_text.problems(0, "demonstrations", mistakes=tiny_text.MISTAKES), strict=False):
        assert tokenizer.decode(row[learned]) == f"{item.solution}<|end|>"
        prompt = tokenizer.decode(row[~learned]).replace("<|pad|>", "")
        assert prompt == f"<|user|>{item.question}<|assistant|>"


def test_so_many_steps_of_the_demonstrations_are_wrong() -> None:
    items = list(islice(tiny_text.problems(0, "demonstrations", mistakes=0.25), 1200))
    steps = [step for item in items for step in item.solution.split("\n")[:-1]]
    assert sum(not eval(step.replace("=", "==")) for step in steps) / len(steps) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("shape", [(2, 16, 16), (3, 16, 40), (3, 40, 16)])
def test_orthogonalised_matrices_have_singular_values_near_1(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    update = orthogonalise(matrices)
    assert update.shape == shape
    values = torch.linalg.svdvals(update)
    assert float(values.min()) > 0.3
    assert float(values.max()) < 1.3
    # The directions are kept: U Sᵏ Vᵀ for other values S.
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    core = left.mT @ update @ right.mT
    assert torch.allclose(core, torch.diag_embed(core.diagonal(dim1=1, dim2=2)), atol=1e-4)


def test_fitting_lowers_the_loss_on_what_is_repeated() -> None:
    tokenizer = tiny.new_tokenizer()
    model = tiny.new_model(tokenizer, seed=0, width=32, layers=1)
    batch = next(tiny_text.demonstrations(tokenizer, 0, 6))

    def loss() -> float:
        with torch.no_grad():
            logits = model(input_ids=batch[0]).logits[:, :-1]
        return float(torch.nn.functional.cross_entropy(logits[batch[1][:, 1:]], batch[0][:, 1:][batch[1][:, 1:]]))

    before = loss()
    Fitting(model, 60).run(iter([batch] * 60), 60, lambda count: None)
    assert loss() < 0.6 * before
    assert not model.training


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_real_one_solves_some_and_not_all(seed: int) -> None:
    made = make_tiny(seed=seed)
    assert 1_000_000 < made.parameters < 3_000_000
    assert 0.2 < made.pass_at_k[1] < 0.5
    assert 0.6 < made.pass_at_k[64] < 0.9
