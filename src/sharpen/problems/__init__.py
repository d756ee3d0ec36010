"""Where problems come from, and how they are put to a model."""

from sharpen.problems.checks import check_golds, check_sandbox
from sharpen.problems.difficulty import Selection, select_by_pass_rate
from sharpen.problems.source import (
    ArithmeticSource,
    FileSource,
    GymSource,
    HubSource,
    MultiStepSource,
    Source,
    fingerprint,
    load_problems,
)
from sharpen.problems.templates import Template, render

__all__ = [
    "ArithmeticSource",
    "FileSource",
    "GymSource",
    "HubSource",
    "MultiStepSource",
    "Selection",
    "Source",
    "Template",
    "check_golds",
    "check_sandbox",
    "fingerprint",
    "load_problems",
    "render",
    "select_by_pass_rate",
]
