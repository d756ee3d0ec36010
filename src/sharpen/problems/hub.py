"""Problems from a data set of the Hugging Face hub, or a local folder that `datasets` reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sharpen.errors import MissingPackageError, ProblemError
from sharpen.problems.rows import Fields, to_problems
from sharpen.records import Problem


class HubSource(Fields):
    """Problems from a data set of the Hugging Face hub, one a row."""

    source: Literal["hub"] = "hub"
    name: str = Field(min_length=1, description="the data set, such as openai/gsm8k")
    subset: str | None = Field(None, description="its configuration, such as main, where it has several")
    split: str = Field("train", description="its split")
    revision: str | None = Field(None, description="a commit, tag or branch; name a commit for a run that can be repeated")


def load_hub(source: HubSource) -> list[Problem]:
    """The problems of a data set, downloaded once into the hub's cache.

    Raises:
        MissingPackageError: `datasets` is not installed.
        ProblemError: the data set cannot be had, or has a row that makes no problem.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingPackageError(
            "datasets", needed_for=f"the data set '{source.name}' of the hub", install="pip install 'sharpen[hub]'"
        ) from error
    where = " ".join(filter(None, [source.name, source.subset, source.split]))
    try:
        rows = datasets.load_dataset(source.name, source.subset, split=source.split, revision=source.revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ProblemError(
            f"data set {where}: cannot be loaded: {type(error).__name__}: {first}",
            fix="Check its name, subset and split on huggingface.co; without a network, download it before and leave HF_HUB_OFFLINE=1 set, "
            'or use a file of your own with source = "file".',
        ) from error
    name = "/".join([source.name.strip("/"), source.split])
    return to_problems(((f"data set {where}, row {number}", row) for number, row in enumerate(rows)), source, name=name)
