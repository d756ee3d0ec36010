"""Does a program pass its tests? The program is a completion's last fenced code block, and it runs in a sandbox.

What is expected is never where the program is. For inputs and outputs, the sandbox gets the input, and the output is compared here. For
assert statements there are two sandboxes: the program is in one and answers calls, the tests are in the other, and only plain data goes
between them. A program can therefore say what it likes, and nothing that it says is believed: right values are all that helps.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace

from sharpen.grading.code_tests import CodeTests, difference, read_tests
from sharpen.grading.confined import Ending
from sharpen.grading.extract import after_thinking
from sharpen.grading.sandbox import Limits, Sandbox, SandboxKind, working
from sharpen.grading.verdict import Outcome, Verdict
from sharpen.records import Problem

LONGEST_PROGRAM = 100_000
"""Characters. A longer program is not run."""

_LANGUAGES = ("python", "python3", "py")


def grade_code(problem: Problem, text: str, *, sandbox: SandboxKind = "bubblewrap") -> Verdict:
    """Judge the program in a completion: all tests must pass.

    May be called from any thread and any process.

    Args:
        problem: its `meta` has the tests; see `sharpen.grading.code_tests`.
        text: the completion.
        sandbox: where the program runs.

    Raises:
        SandboxError: the sandbox is not installed or does not work.
    """
    try:
        tests = read_tests(problem.meta)
    except ValueError as error:
        return Verdict("unscorable", f"the tests of problem '{problem.id}' cannot be read: {error}", None)
    program, fault = find_program(text)
    if program is None:
        return Verdict("wrong", f"no answer: {fault}", None)
    if len(program) > LONGEST_PROGRAM:
        return Verdict("wrong", f"the program has {len(program):,} characters, more than {LONGEST_PROGRAM:,}", program)
    judge = _by_cases if tests.cases else _by_calls
    outcome, reason = judge(working(sandbox), program, tests, replace(Limits(), seconds=tests.seconds))
    return Verdict(outcome, reason, program)


def find_program(text: str) -> tuple[str | None, str]:
    """The program in a completion, None when there is none, and then why.

    That is the last block fenced by three backticks and marked as Python; without such a one, the last that is marked as nothing.
    """
    said = after_thinking(text)
    if said is None:
        return None, "the thinking is not finished"
    blocks: dict[bool, str] = {}
    language: str | None = None
    lines: list[str] = []
    for line in said.splitlines():
        if language is None:
            if line.lstrip().startswith("```") and "```" not in (mark := line.strip()[3:]):
                language, lines = mark.strip().lower(), []
        elif line.strip() == "```":
            if language in ("", *_LANGUAGES):
                blocks[bool(language)] = textwrap.dedent("\n".join(lines)) + "\n"
            language = None
        else:
            lines.append(line)
    if language in ("", *_LANGUAGES):
        return None, "the last code block is not closed"
    program = blocks.get(True) or blocks.get(False)
    return (program, "") if program and program.strip() else (None, "there is no block of Python code")


def fenced(program: str) -> str:
    """A program as a completion gives it."""
    return program if find_program(program)[0] else f"```python\n{program.rstrip()}\n```"


def _by_cases(box: Sandbox, program: str, tests: CodeTests, limits: Limits) -> tuple[Outcome, str]:
    """Run the program on each input, in a sandbox of its own, up to the first output that differs."""
    for number, (given, expected) in enumerate(tests.cases, start=1):
        result = box.run(program, given, limits=limits)
        fault = result.why if result.outcome != "ok" else difference(result.stdout, expected, tests.tolerance)
        if fault is not None:
            return "wrong", f"test {number} of {len(tests.cases)}: {fault}"
    return "right", _passed(len(tests.cases))


def _by_calls(box: Sandbox, program: str, tests: CodeTests, limits: Limits) -> tuple[Outcome, str]:
    """Let the tests, in one sandbox, call the program, in another."""
    plan = json.dumps({"tests": tests.statements, "names": tests.names})
    with box.start("serve", program, limits=limits) as candidate, box.start("test", plan, limits=limits) as tester:
        loaded = candidate.line()
        if (fault := _fault_of_loading(loaded)) is not None:
            return "wrong", f"the program does not load: {fault}"
        answered = False
        while True:
            line = tester.line()
            if isinstance(line, Ending):
                # What the program answered may have brought that about; if it was never asked, it has not.
                return ("wrong" if answered else "unscorable"), f"the tests did not come to an end: {line.why}"
            if line.startswith(b"V"):
                outcome, reason = json.loads(line[1:])
                return outcome, reason or _passed(len(tests.statements))
            candidate.send(line[1:] + b"\n")
            reply, answered = candidate.line(), True
            if isinstance(reply, Ending):
                return "wrong", f"calling {json.loads(line[1:])[0]}: {reply.why}"
            tester.send(reply + b"\n")


def _fault_of_loading(reply: bytes | Ending) -> str | None:
    if isinstance(reply, Ending):
        return reply.why
    try:
        kind, *content = json.loads(reply)
        return None if kind == "value" else f"{content[0]!s:.60}: {content[1]!s:.200}"
    except (ValueError, TypeError, IndexError, RecursionError):
        return "it gave what is no reply"


def _passed(count: int) -> str:
    return "the test passed" if count == 1 else f"all {count} tests passed"
