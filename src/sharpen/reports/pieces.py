"""The text of each token of a completion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sharpen.recipe import Recipe
from sharpen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"


def find_tokenizer(folder: RunFolder, recipe: Recipe) -> Path | None:
    """The tokenizer's file: in the trained model, the newest checkpoint, or the model before training where that is on this machine."""
    places = [folder.model, *sorted(folder.checkpoints.glob("step-*"), reverse=True)]
    for place in places:
        if (place / FILE).is_file():
            return place / FILE
    return _of_model(recipe.model)


def load(path: Path) -> Tokenizer:
    """The tokenizer, without the model that it belongs to."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text that each token adds; joined, they are the text with its special tokens.

    A character that several tokens make up stands with the last of them, and the others are empty. An id that the tokenizer does not know
    is shown as `<id 12>`.
    """
    from tokenizers.decoders import DecodeStream

    stream, out = DecodeStream(skip_special_tokens=False), list[str]()
    for token in tokens:
        if tokenizer.id_to_token(token) is None:
            out.append(f"<id {token}>")
            continue
        out.append(stream.step(tokenizer, token) or "")
    return out


def _of_model(name: str) -> Path | None:
    """The file of a model that is on this machine; nothing is downloaded."""
    from sharpen.models import tiny
    from sharpen.models.loading import EMBEDDED, find_folder

    if (Path(name) / FILE).is_file():
        return Path(name) / FILE
    if name == EMBEDDED or ((seed := tiny.seed_of(name)) is not None and tiny.is_made(seed)):
        path = find_folder(name) / FILE
        return path if path.is_file() else None
    if Path(name).exists() or name.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, FILE)
    return Path(found) if isinstance(found, str) else None
