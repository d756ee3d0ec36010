"""What runs inside the sandbox. It is handed to a Python interpreter as text, and imports nothing but the standard library.

    python -c <this text> MODE UID RLIMIT_NAME=SOFT:HARD ...

The first line of the standard input has a number of bytes, and so many bytes follow: the program, or in the mode `test` the tests as JSON.
One `+` on the standard output says that the confinement stands and the program begins. The modes:

- `run`: the program is a script. The rest of the standard input is its own, and so is all further output.
- `serve`: the program's functions are called, one request and one reply a line.
- `test`: tests call functions that are elsewhere, by such requests (`C...`), and end with what they found (`V...`).

Nothing secret is ever in a process of the first two modes, and nothing that comes out of it is believed: it is compared with what is
expected, elsewhere. So a program may do with this module what it likes.
"""

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False  # importing `typing` takes longer than starting Python
if TYPE_CHECKING:
    from typing import Any, BinaryIO

LONGEST_SHOWN = 60
REFUSED = "refused"
PLAIN = "numbers, texts, bytes, None, lists, tuples, sets and dicts"


def main(arguments: list[str]) -> None:
    """Confine this process, read the program, and run it in its mode."""
    mode, uid, *limits = arguments
    program = _read_program()
    if os.getpid() == 1:
        _stay_behind()
    _confine(uid, limits)
    os.environ.clear()
    sys.set_int_max_str_digits(0)
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # as `site` has them, which is not imported
    sys.argv = ["program.py"]
    os.write(1, b"+")
    if mode == "run":
        run(program)
    elif mode == "serve":
        serve(program, *_private_pipes())
    else:
        test(program, *_private_pipes())


def _confine(uid: str, limits: list[str]) -> None:
    """Take on the limits and, where one is given, the user; there is no way back from either."""
    import resource

    for limit in limits:
        name, _, values = limit.partition("=")
        soft, _, hard = values.partition(":")
        number = getattr(resource, name)
        most = resource.getrlimit(number)[1]  # whoever started us may have less
        least = [int(one) if most == resource.RLIM_INFINITY else min(int(one), most) for one in (soft, hard)]
        resource.setrlimit(number, (least[0], least[1]))
    if uid != "-":
        number = int(uid)
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)


def _stay_behind() -> None:
    """Leave the program to a child, and end as it ends; only the child comes back.

    The first process of a namespace does not die of signals as others do, and all in the namespace die with it.
    """
    child = os.fork()
    if child == 0:
        return
    pid = 0
    while pid != child:
        pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _read_program() -> str:
    """The program from the standard input, and not a byte more: what follows is another's."""
    length = b""
    while not length.endswith(b"\n"):
        length += os.read(0, 1) or b"0\n"
    program = b""
    while len(program) < int(length):
        program += os.read(0, int(length) - len(program)) or b"\0" * int(length)
    return program.decode()


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The standard input and output, moved to where a program that reads or prints does not disturb them."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb", buffering=0)


# --- a script -------------------------------------------------------------------------------------------------------------------------


def run(program: str) -> None:
    """Run the program as a script."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(compile(program, "program.py", "exec"), vars(module))


# --- functions that are called --------------------------------------------------------------------------------------------------------


def serve(program: str, source: BinaryIO, sink: BinaryIO) -> None:
    """Load the program, and call its functions as they are asked for.

    A request is `[name, arguments, keywords]`; a reply is `["value", value]`, `["raised", type, message]` or `["refused", type]`.
    """
    import json

    module = type(sys)("program")
    sys.modules["program"] = module
    try:
        exec(compile(program, "program.py", "exec"), vars(module))
        reply = ["value", None]
    except BaseException as error:
        reply = ["raised", type(error).__name__, str(error)[:200]]
    _send(sink, json.dumps(reply))
    for line in source:
        try:
            name, arguments, keywords = decode(json.loads(line))
            if name not in vars(module):
                raise NameError(f"name '{name}' is not defined")
            result = vars(module)[name](*arguments, **keywords)
            try:
                text = json.dumps(["value", encode(result)])
            except TypeError:
                text = json.dumps([REFUSED, type(result).__name__])
        except BaseException as error:
            text = json.dumps(["raised", type(error).__name__, str(error)[:200]])
        _send(sink, text)


def _send(sink: BinaryIO, text: str) -> None:
    data = memoryview(text.encode() + b"\n")
    while data:
        data = data[sink.write(data) or 0 :]


def encode(value: Any) -> Any:
    """Plain data as JSON: a list is an array, and anything that JSON lacks is an object with one key, `{"tuple": [1, 2]}`.

    Raises:
        TypeError: the value, or one inside it, is not plain data.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encode(item) for item in value]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise TypeError(f"{type(value).__name__} is not plain data")


def decode(value: Any) -> Any:
    """What `encode` was given, of the exact built-in types: no method of it, such as `__eq__`, is the program's."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "dict":
        return {decode(key): decode(item) for key, item in content}
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "complex":
        return complex(*content)
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](decode(item) for item in content)


# --- tests that call them -------------------------------------------------------------------------------------------------------------


class CandidateError(Exception):
    """The program's function raised an exception that is no built-in one."""


class _OverError(BaseException):
    """What cannot go on. Not an `Exception`, so that no test swallows it."""

    def __init__(self, outcome: str, reason: str) -> None:
        self.outcome, self.reason = outcome, reason


class Candidate:
    """Stands for a function of the program, which is in another process."""

    def __init__(self, name: str, source: BinaryIO, sink: BinaryIO) -> None:
        self._name, self._source, self._sink = name, source, sink
        self.__name__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The function's result, or what it raised."""
        import json

        try:
            request = json.dumps(encode([self._name, list(arguments), keywords]))
        except TypeError as error:
            raise _OverError("unscorable", f"the tests call {self._name} with what cannot be handed over: {error}; only {PLAIN}") from None
        _send(self._sink, "C" + request)
        line = self._source.readline()
        if not line:
            raise _OverError("wrong", "the program ended")
        try:
            kind, *content = json.loads(line)
            if kind == "value":
                return decode(content[0])
            name, *message = content
        except Exception:
            raise _OverError("wrong", f"{self._name} gave what is no reply") from None
        if kind == REFUSED:
            raise _OverError("wrong", f"{self._name} returned a {name!s:.60}, which is not plain data ({PLAIN})")
        known = getattr(builtins, str(name), None)
        if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, (UnicodeError, BaseExceptionGroup)):
            raise known(*message)
        raise CandidateError(f"{name}: {''.join(map(str, message))}")


def test(program: str, source: BinaryIO, sink: BinaryIO) -> None:
    """Run the tests in order, up to the first that fails, and say `V["right", ""]`, or the outcome and the reason."""
    import ast
    import json

    tests = json.loads(program)
    namespace: dict[str, Any] = {"__name__": "tests"} | {name: Candidate(name, source, sink) for name in tests["names"]}
    outcome, reason = "right", ""
    for number, code in enumerate(tests["tests"], start=1):
        place = f"test {number} of {len(tests['tests'])}"
        tree = ast.parse(code)
        try:
            exec(compile(tree, "<test>", "exec"), namespace)
        except AssertionError as error:
            outcome, reason = "wrong", f"{place} failed: {_why(tree, error)}"
        except _OverError as over:
            outcome, reason = over.outcome, f"{place}: {over.reason}"
        except BaseException as error:
            outcome, reason = "wrong", f"{place} raised {type(error).__name__}: {error!s:.100}"
        if outcome != "right":
            break
    _send(sink, "V" + json.dumps([outcome, reason]))


def _why(tree: Any, error: AssertionError) -> str:
    """What an assertion says, with the two values where it compares two."""
    import ast

    place = None
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<test>":
            place = traceback
        traceback = traceback.tb_next
    if place is None or place.tb_next is not None:
        return f"AssertionError: {error!s:.100}"  # it is the program's own
    frame = place.tb_frame
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Assert) and node.lineno <= place.tb_lineno <= (node.end_lineno or 0)]
    if not found:
        return "AssertionError"
    claim = found[-1].test

    def value(node: ast.expr) -> str:
        return _short(repr(eval(compile(ast.Expression(node), "<test>", "eval"), frame.f_globals, frame.f_locals)))

    if isinstance(claim, ast.Compare) and len(claim.ops) == 1 and isinstance(claim.ops[0], (ast.Eq, ast.Is)):
        try:
            return f"{_short(ast.unparse(claim.left))} is {value(claim.left)}, expected {value(claim.comparators[0])}"
        except BaseException:  # the function gives another result, or none, the second time
            return f"{ast.unparse(claim)!s:.200}"
    return f"{ast.unparse(claim)!s:.200}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


if __name__ == "__main__":
    main(sys.argv[1:])
