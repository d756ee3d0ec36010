"""Programs that try to get out. Each must fail, be reported as what it is, and leave nothing on the machine."""

from __future__ import annotations

import errno
import os
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sandboxed import traces, why_not

from sharpen.errors import SandboxError
from sharpen.grading import cgroups, confined, seccomp
from sharpen.grading.sandbox import Limits, RunResult, Sandbox

needs_bubblewrap = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
SMALL = Limits(seconds=2.0, memory=512 << 20, files=4 << 20, output=100_000)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = traces()
    yield
    assert traces() == before


def run(program: str, stdin: str = "", limits: Limits = SMALL) -> RunResult:
    return Sandbox().run(textwrap.dedent(program), stdin, limits=limits)


def refused(*attempts: str) -> None:
    """Every attempt, an expression or statement, raises an OSError (or, for the C library, returns -1), and the program goes on."""
    program = "import os, sys, socket, ctypes, signal, pathlib, subprocess\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    program += "def c(result):\n    if result == -1: raise OSError(ctypes.get_errno(), 'refused')\n    return result\n"
    for attempt in attempts:
        program += f"try:\n    {attempt}\n    print('got through:', {attempt!r})\nexcept OSError:\n    print('refused', file=sys.stderr)\n"
    result = run(program)
    assert (result.outcome, result.stdout) == ("ok", ""), result
    assert result.stderr.count("refused") == len(attempts), result


# --- honest programs ------------------------------------------------------------------------------------------------------------------


@needs_bubblewrap
def test_an_honest_program() -> None:
    result = run("import sys\nprint(input()); print(sys.stdin.read().upper(), file=sys.stderr)", "eins\nzwei ü\n")
    assert (result.outcome, result.exit_code, result.stdout, result.stderr) == ("ok", 0, "eins\n", "ZWEI Ü\n\n")
    assert 0.0 < result.seconds < 2.0


@needs_bubblewrap
@pytest.mark.parametrize(
    ("program", "outcome", "code", "why"),
    [
        ("exit(3)", "error", 3, "it ended with exit code 3"),
        ("1 / 0", "error", 1, "ZeroDivisionError: division by zero"),
        ("print(", "error", 1, "SyntaxError: '(' was never closed"),
        ("import os; os.kill(os.getpid(), 15)", "killed", -15, "signal 15 ended it"),
        ("import os; os._exit(0)", "ok", 0, "it ended"),
        ("import ctypes; ctypes.string_at(0)", "killed", -11, "signal 11 ended it"),
        ("def f(): f()\nf()", "error", 1, "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_how_a_program_ends(program: str, outcome: str, code: int, why: str) -> None:
    result = run(program)
    assert (result.outcome, result.exit_code, result.why) == (outcome, code, why)


@needs_bubblewrap
def test_what_honest_programs_use_works() -> None:
    program = """
    import asyncio, collections, dataclasses, hashlib, heapq, math, random, re, sys, tempfile, threading, typing
    @dataclasses.dataclass
    class Point: x: int
    async def one(): return 1
    total = []
    threads = [threading.Thread(target=total.append, args=(i,)) for i in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    with tempfile.TemporaryFile() as f: f.write(b"x")
    print(Point(1), asyncio.run(one()), sum(total), open("/dev/null").read() == "", hashlib.md5(b"x").hexdigest()[:4], 10 ** 5000 > 0)
    """
    result = run(program)
    assert (result.outcome, result.stdout) == ("ok", "Point(x=1) 1 6 True 9dd4 True\n"), result
    assert run("print(list({'a', 'b', 'c', 'd'}))").stdout == run("print(list({'a', 'b', 'c', 'd'}))").stdout


# --- what it must not see -------------------------------------------------------------------------------------------------------------


@needs_bubblewrap
def test_it_reads_no_file_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("42")
    home = Path.home()
    files = [
        "/etc/passwd",
        "/etc/shadow",
        "/etc/hostname",
        "/proc/self/mem",
        "/proc/1/environ",
        "/proc/mounts",
        "/sys/fs/cgroup",
        "/bin/sh",
    ]
    refused(*(f"os.stat({name!r})" for name in (*files, "/var", "/home", str(home), str(tmp_path / "secret"), __file__)))
    assert run("import os; print(sorted(os.listdir('/')), sorted(os.listdir('/dev')), sorted(os.listdir('/etc')))").stdout in [
        f"{sorted(['dev', 'etc', 'python', 'tmp', 'usr', *(name[1:] for name in ('/lib', '/lib32', '/lib64') if os.path.lexists(name))])} "
        f"['null', 'urandom'] {etc}\n"
        for etc in ([], ["ld.so.cache"])
    ]


@needs_bubblewrap
def test_it_sees_no_installed_package() -> None:
    places = [
        *("/usr/lib/python3/dist-packages", "/python/lib/python{v}/site-packages", "/python/lib/python{v}/dist-packages"),
        *("/usr/lib/python{v}/dist-packages", "/usr/lib/python{v}/site-packages", "/usr/lib64/python{v}/site-packages"),
    ]
    program = """
    import os
    found = [os.path.join(top, name) for top, names, _ in os.walk('/') for name in names if name.endswith('-packages')]
    print([place for place in found if os.listdir(place)])
    for place in found:
        try: open(os.path.join(place, 'mine.py'), 'w')
        except OSError: continue
        print('written', place)
    """
    assert run(program, limits=replace(SMALL, seconds=30.0)).stdout == "[]\n"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    search = f"import sys; sys.path[:0] = {[place.format(v=version) for place in places]!r}\n"
    assert run(f"{search}import pip").why == "ModuleNotFoundError: No module named 'pip'"
    for package in {path.name for path in Path("/usr/lib/python3/dist-packages").glob("[a-z]*") if (path / "__init__.py").is_file()}:
        result = run(f"{search}import {package}", limits=replace(SMALL, seconds=30.0))
        assert result.why == f"ModuleNotFoundError: No module named '{package}'", result
        break  # one will do: each takes a sandbox


def test_where_installed_packages_are_masked(tmp_path: Path) -> None:
    for place in (
        "usr/python3/dist-packages",
        "own/python3.11/site-packages",
        "own/sdk/lib/python3/site-packages",
        "far/packages",
        "usr/python3.9",
    ):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "own" / "python3.1").symlink_to("python3.11")
    (tmp_path / "usr" / "python3.9" / "site-packages").symlink_to(tmp_path / "far" / "packages")  # which is not seen inside
    inside = {"/usr/lib": tmp_path / "usr", "/python/lib": tmp_path / "own", "/usr/lib32": tmp_path / "none"}
    assert confined._packages(inside) == [
        "/python/lib/python3.11/site-packages",
        "/python/lib/sdk/lib/python3/site-packages",
        "/usr/lib/python3/dist-packages",
    ]
    system = {"/usr/lib": tmp_path / "usr", "/python/lib": tmp_path / "usr"}  # where the system's Python runs sharpen
    assert confined._packages(system) == ["/python/lib/python3/dist-packages", "/usr/lib/python3/dist-packages"]


@needs_bubblewrap
def test_it_sees_no_environment_no_process_and_no_name_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "42")
    result = run("import os, socket; print(dict(os.environ), os.getcwd(), socket.gethostname(), os.getuid() != 0, os.getpid() < 5)")
    assert result.stdout == "{} /tmp sandbox True True\n"
    alive = subprocess.Popen(["sleep", "60"])
    try:
        refused(f"os.kill({alive.pid}, 0)", f"os.getpgid({alive.pid})", f"os.pidfd_open({alive.pid})", "os.listdir('/proc')")
    finally:
        alive.kill()
        alive.wait()


@needs_bubblewrap
def test_it_holds_no_descriptor_of_ours(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        program = "import os\nfor n in range(3, 200):\n    try: os.fstat(n); print(n)\n    except OSError: pass"
        assert run(program).stdout == ""


# --- what it must not reach -----------------------------------------------------------------------------------------------------------


@needs_bubblewrap
def test_it_writes_nowhere_but_in_its_folder() -> None:
    places = ["/", "/usr/lib", "/python", "/python/lib", "/dev", "/etc", "/lib"]
    refused(*(f"open('{place}/intruder', 'w')" for place in places), "os.mkdir('/new')", "os.unlink('/python/bin/python3')")
    refused(
        "open('/python/bin/python3', 'ab')", "os.chmod('/usr/lib', 0o777)", "os.mknod('/tmp/sda', 0o60666, 0x800)", "os.chown('/tmp', 0, 0)"
    )
    assert run("open('/tmp/mine', 'w').write('x'); import os; print(os.listdir('/tmp'))").stdout == "['mine']\n"
    assert run("import os; print(os.listdir('/tmp'))").stdout == "[]\n"


@needs_bubblewrap
def test_it_opens_no_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        refused(
            f"socket.create_connection({address}, 1)", "socket.create_connection(('1.1.1.1', 53), 1)", "socket.create_server(('', 8080))"
        )
        refused(
            "socket.socket(socket.AF_UNIX).bind('/tmp/s')", "socket.socket(socket.AF_UNIX).bind('\\0abstract')", "socket.socket(16, 3, 0)"
        )
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


@needs_bubblewrap
def test_without_the_filter_of_calls_the_namespaces_hold_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "filter_program", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        refused(f"socket.create_connection({address}, 1)", "socket.create_connection(('1.1.1.1', 53), 1)")
    refused(
        "c(libc.mount(None, b'/', None, 32 | 4096, None))", "c(libc.umount2(b'/usr/lib', 2))", "open('/usr/lib/x', 'w')", "os.setuid(0)"
    )
    refused("c(libc.unshare(0x10000000)) or c(libc.mount(None, b'/usr/lib', None, 32 | 4096, None)) or open('/usr/lib/x', 'w')")


@needs_bubblewrap
@pytest.mark.skipif(seccomp.filter_program() is None, reason=f"no filter of system calls for {platform.machine()}")
def test_calls_that_are_filtered() -> None:
    refused("c(libc.ptrace(16, 1, 0, 0))", "c(libc.mount(None, b'/', None, 32, None))", "c(libc.umount2(b'/tmp', 2))")
    refused("c(libc.unshare(0x10000000))", "c(libc.unshare(0x00020000))", "os.chroot('/tmp')", "os.setuid(0)")
    refused("os.memfd_create('x')", "c(libc.shmget(0, 1 << 20, 0o1600))", "c(libc.clone(None, None, 0x10000000, None))")
    refused("c(libc.process_vm_readv(1, None, 0, None, 0, 0))", "c(libc.sethostname(b'x', 1))", "c(libc.personality(0x0040000))")


@needs_bubblewrap
def test_it_ends_no_process_but_its_own() -> None:
    result = run("import os, signal\nos.kill(-1, 9)")
    assert result.outcome in ("killed", "ok", "error")
    assert run(
        "import os\nprint(os.getppid())\ntry: os.kill(os.getppid(), 9)\nexcept PermissionError: pass\nprint('still here')"
    ).stdout == ("1\nstill here\n")


# --- what it must not use up ----------------------------------------------------------------------------------------------------------


@needs_bubblewrap
@pytest.mark.parametrize(
    "program",
    [
        "import os\nwhile True: os.fork()",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "import time\ntime.sleep(999)",
    ],
)
def test_fork_bombs_and_sleepers_are_ended(program: str) -> None:
    begun = time.monotonic()
    result = run(program)
    assert result.outcome in ("timeout", "error", "output")
    assert time.monotonic() - begun < 2 * SMALL.seconds


@needs_bubblewrap
def test_processes_are_counted_and_none_outlives_the_program() -> None:
    escape = """
    import os, sys, time
    made = 0
    try:
        for _ in range(100):
            if os.fork() == 0:
                os.setsid()
                try:
                    if os.fork() == 0:
                        os.setsid()
                        os.closerange(0, 100)
                        time.sleep(60)
                finally:
                    os._exit(0)
            made += 1
            time.sleep(0.005)
    except OSError as error:
        print(made < 100, error.errno)
    """
    result = run(escape)
    assert (result.outcome, result.stdout) == ("ok", "True 11\n")


@needs_bubblewrap
def test_a_loop_that_ignores_signals_is_ended() -> None:
    result = run("import signal\nfor n in (1, 2, 10, 12, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass")
    assert (result.outcome, result.exit_code) == ("timeout", None)
    assert result.why == "it took too long"


@needs_bubblewrap
def test_the_limits_of_a_process_cannot_be_raised() -> None:
    program = """
    import resource
    for name in ("CPU", "AS", "FSIZE", "NOFILE", "NPROC", "CORE"):
        number = getattr(resource, "RLIMIT_" + name)
        limits = resource.getrlimit(number)
        try: resource.setrlimit(number, (limits[0], limits[1] + 1)); print("raised")
        except ValueError: print(name, *limits)
    """
    assert run(program).stdout == (f"CPU 3 4\nAS {512 << 20} {512 << 20}\nFSIZE {4 << 20} {4 << 20}\nNOFILE 64 64\nNPROC 16 16\nCORE 0 0\n")


@needs_bubblewrap
@pytest.mark.parametrize(
    ("program", "outcomes"),
    [
        ("x = bytearray(10 * 2**30)", ["memory"]),
        ("x = []\nwhile True: x.append(bytearray(2**20))", ["memory"]),
        ("import mmap\nx = mmap.mmap(-1, 10 * 2**30)", ["error", "memory"]),
        ("x = 'a' * 10**9 * 100", ["memory"]),
        ("import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()", ["memory", "killed", "timeout"]),
    ],
)
def test_memory_is_limited(program: str, outcomes: list[str]) -> None:
    assert run(program).outcome in outcomes


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a control group, which root can make")
def test_memory_of_all_processes_together_is_limited() -> None:
    group = cgroups.make(processes=5, memory=1 << 30)
    if group is None:
        pytest.skip("no control groups here")
    group.remove()
    hoard = """
    import os, time
    children = []
    for _ in range(6):
        children.append(os.fork())
        if children[-1] == 0:
            x = bytearray(b"x") * (200 << 20)
            time.sleep(1.5)
            os._exit(0)
    print(sum(os.waitpid(child, 0)[1] == 9 for child in children))
    """
    # Of six times 200 MiB, 300 + 4 + 64 MiB are given.
    result = run(hoard, limits=replace(SMALL, memory=300 << 20, seconds=20.0))
    assert (result.outcome, result.stdout) == ("ok", "5\n") or result.outcome == "memory", result


@needs_bubblewrap
@pytest.mark.parametrize(
    "program",
    [
        "while True: print('x' * 1000)",
        "import sys\nwhile True: sys.stderr.write('x' * 1000)",
        "import os\nwhile True: os.write(1, b'\\0' * 65536)",
        "import os\nfor _ in range(3): os.fork()\nwhile True: print('x' * 1000)",
    ],
)
def test_output_is_limited(program: str) -> None:
    result = run(program)
    assert result.outcome == "output"
    assert max(len(result.stdout), len(result.stderr)) <= SMALL.output
    assert result.seconds < SMALL.seconds


@needs_bubblewrap
def test_files_are_limited() -> None:
    assert run("open('/tmp/big', 'wb').write(b'x' * 10**7)").why == "OSError: [Errno 27] File too large"
    many = "for i in range(10): open(f'/tmp/{i}', 'wb').write(b'x' * 10**6)"
    assert run(many).why == "OSError: [Errno 28] No space left on device"
    assert "Too many open files" in run("x = [open('/dev/null') for _ in range(100)]").why


@needs_bubblewrap
def test_an_archive_of_all_it_can_see_does_not_fit() -> None:
    archive = """
    import tarfile
    with tarfile.open('/tmp/all.tar', 'w') as tar:
        for folder in ('/usr', '/python', '/etc', '/dev/null'): tar.add(folder)
    """
    assert run(archive).why == "OSError: [Errno 27] File too large"


@needs_bubblewrap
def test_closing_every_descriptor_is_no_way_out() -> None:
    result = run("import os, time\nos.closerange(0, 1000)\ntime.sleep(60)")
    assert result.outcome == "timeout"
    assert result.seconds < 2 * SMALL.seconds


@needs_bubblewrap
def test_a_program_that_does_not_read_its_input_and_one_that_reads_much() -> None:
    much = "x" * 5_000_000
    assert run("print(1)", much).outcome == "ok"
    assert run("import sys; print(len(sys.stdin.read()))", much).stdout == "5000000\n"
    assert run("import os; os.close(0); print(1)", much).stdout == "1\n"


@needs_bubblewrap
def test_all_at_once() -> None:
    program = """
    import os, signal, sys, threading
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setrecursionlimit(10**6)
    for _ in range(5):
        try: os.fork(); os.setsid()
        except OSError: pass
    def write():
        while True:
            try: open(f'/tmp/{os.urandom(4).hex()}', 'wb').write(b'x' * 10**6)
            except OSError: pass
    threading.Thread(target=write).start()
    hoard = []
    while True:
        try: hoard.append(bytearray(10**7))
        except MemoryError: pass
        try: os.kill(-1, 9); os.kill(1, 9)
        except OSError: pass
    """
    assert run(program).outcome in ("timeout", "killed", "memory", "error", "ok")


# --- the machinery --------------------------------------------------------------------------------------------------------------------


@needs_bubblewrap
def test_from_many_threads_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: run(f"print({n})", limits=replace(SMALL, seconds=30.0)).stdout, range(24)))
    assert results == [f"{n}\n" for n in range(24)]


@needs_bubblewrap
def test_the_sandbox_ends_with_us() -> None:
    program = "from sharpen.grading.sandbox import Sandbox\nprint('begun', flush=True)\nSandbox().run('import time; time.sleep(60)')"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    give_up = time.monotonic() + 30.0
    while not (inside := traces()["running"]) and time.monotonic() < give_up:
        time.sleep(0.05)
    time.sleep(0.5)
    child.kill()
    child.wait()
    child.stdout.close()
    give_up = time.monotonic() + 5.0
    while traces()["running"] and time.monotonic() < give_up:
        time.sleep(0.05)
    assert inside
    for folder in Path("/sys/fs/cgroup").glob(f"**/sharpen-{child.pid}-*"):
        folder.rmdir()


def test_bubblewrap_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="bubblewrap, which is not installed") as caught:
        Sandbox().check()
    assert "apt-get install bubblewrap" in str(caught.value)
    assert 'sandbox = "none"' in str(caught.value)


def test_bubblewrap_that_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="No permissions to create new namespace") as caught:
        Sandbox().check()
    assert "--cap-add SYS_ADMIN" in str(caught.value)


def test_a_sandbox_that_does_not_start_is_no_timeout_of_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stuck = tmp_path / "bwrap"
    stuck.write_text("#!/bin/sh\nexec sleep 60\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(confined, "_START_SECONDS", 0.3)
    monkeypatch.setattr(confined, "_ENVIRONMENT", {"PATH": os.environ["PATH"]})
    with pytest.raises(SandboxError, match="does not start: no word of it in 0"):
        run("print(1)")


def test_without_a_sandbox_there_are_limits_but_no_walls() -> None:
    box = Sandbox("none")
    box.check()
    assert box.run("import os; print(dict(os.environ), input())", "x", limits=SMALL).stdout == "{} x\n"
    assert box.run("while True: pass", limits=SMALL).outcome == "timeout"
    assert box.run("while True: print(1)", limits=SMALL).outcome == "output"
    assert box.run("open('file', 'w').write('x' * 10**7)", limits=SMALL).why == "OSError: [Errno 27] File too large"
    if sys.platform == "linux":
        assert box.run("x = bytearray(10 * 2**30)", limits=SMALL).outcome == "memory"


def answer(rules: bytes, audit: int, number: int, argument: int = 0) -> int:
    """What a filter says to a call: the kernel's side, for the five instructions that it uses."""
    lines = list(struct.iter_unpack("=HBBI", rules))
    data = {0: number, 4: audit, 16: argument}
    at, register = 0, 0
    while True:
        code, yes, no, value = lines[at]
        if code == 0x06:
            return value
        if code == 0x20:
            register = data[value]
            at += 1
        else:
            at += 1 + (yes if (register == value if code == 0x15 else register & value) else no)


@pytest.mark.parametrize(("machine", "audit", "clone", "read"), [("x86_64", 0xC000003E, 56, 0), ("aarch64", 0xC00000B7, 220, 63)])
def test_what_the_filter_says(machine: str, audit: int, clone: int, read: int) -> None:
    rules = seccomp.filter_program(machine)
    assert rules is not None
    allow, refuse, unknown, kill = 0x7FFF0000, 0x00050000 + errno.EPERM, 0x00050000 + errno.ENOSYS, 0x80000000
    numbers = [pair[machine == "aarch64"] for pair in seccomp.FORBIDDEN.values()]
    assert {answer(rules, audit, number) for number in numbers if number is not None} == {refuse}
    assert answer(rules, audit, read) == allow
    assert answer(rules, audit, clone, signal.SIGCHLD) == allow
    assert answer(rules, audit, clone, 0x10000000 | signal.SIGCHLD) == refuse
    assert answer(rules, audit, seccomp.CLONE3) == unknown
    assert answer(rules, 0x40000003, read) == kill
    if machine == "x86_64":
        assert answer(rules, audit, 0x40000000 + read) == refuse
    assert seccomp.filter_program("riscv64") is None


@pytest.mark.parametrize(
    ("header", "column"), [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)]
)
def test_the_numbers_of_calls_are_the_kernels(header: str, column: int) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not there: it has the numbers (package linux-libc-dev)")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
    listed = {name: str(pair[column]) for name, pair in seccomp.FORBIDDEN.items() if pair[column] is not None}
    assert listed.items() <= known.items()
