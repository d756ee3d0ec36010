"""Is this answer right? Every grader returns right, wrong or unscorable, with a reason; `GradingPool` grades many, with limits."""

from sharpen.grading.choice import grade_choice
from sharpen.grading.code import grade_code
from sharpen.grading.extract import extract_answer
from sharpen.grading.gym import grade_gym
from sharpen.grading.math import gold_fault, grade_math
from sharpen.grading.plain import grade_exact, grade_numeric, grade_regex
from sharpen.grading.pool import GradingPool, shared
from sharpen.grading.registry import GRADERS, grade, quick, state_gold
from sharpen.grading.sandbox import Sandbox, SandboxKind
from sharpen.grading.verdict import Mode, Outcome, Verdict

__all__ = [
    "GRADERS",
    "GradingPool",
    "Mode",
    "Outcome",
    "Sandbox",
    "SandboxKind",
    "Verdict",
    "extract_answer",
    "gold_fault",
    "grade",
    "grade_choice",
    "grade_code",
    "grade_exact",
    "grade_gym",
    "grade_math",
    "grade_numeric",
    "grade_regex",
    "quick",
    "shared",
    "state_gold",
]
