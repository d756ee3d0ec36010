"""A filter of system calls for programs that nobody has read: no sockets, no tracing, no mounts, no shared memory, no new namespaces.

It is a second wall. What it forbids is either useless behind the first one (bubblewrap's namespaces) or would pass by a limit: shared
memory outlives the process that counts it. Forbidden calls fail with EPERM. Numbers are those of Linux's `unistd_64.h` and
`asm-generic/unistd.h`.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from typing import NamedTuple


class _Machine(NamedTuple):
    """How a processor's system calls are numbered."""

    audit: int
    clone: int
    column: int


_MACHINES: Mapping[str, _Machine] = {"x86_64": _Machine(0xC000003E, 56, 0), "aarch64": _Machine(0xC00000B7, 220, 1)}
CLONE3 = 435
NEW_NAMESPACES = 0x7E020000
"""The flags of `clone` that make a namespace: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_X32 = 0x40000000

FORBIDDEN: Mapping[str, tuple[int, int | None]] = {
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    # Sockets; a pair of connected ones, which asyncio needs, may be had.
    "socket": (41, 198), "bind": (49, 200), "listen": (50, 201), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    # The tree of files and the namespaces.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # Memory that no process is charged with.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196), "mq_open": (240, 180),
    # Large and often faulty parts of the kernel.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # The machine itself.
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "personality": (135, 92), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None),
}  # fmt: skip
"""What may not be called, with its number on x86_64 and on aarch64."""

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter as a program of the classic BPF, for `bwrap --seccomp`; None for a processor whose system calls are not listed here.

    Args:
        machine: as `platform.machine()` names it; this one when None.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    numbers = [found for pair in FORBIDDEN.values() if (found := pair[known.column]) is not None]
    lines = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, known.audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if known.column == 0:
        lines += [(_ANY_BIT, 0, 1, _X32), (_RETURN, 0, 0, _FAIL | errno.EPERM)]
    # The C library falls back on `clone`, whose flags a filter can read, where there is no `clone3`.
    lines += [(_EQUAL, 0, 1, CLONE3), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]
    for number in numbers:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _FAIL | errno.EPERM)]
    lines += [(_EQUAL, 0, 3, known.clone), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, NEW_NAMESPACES)]
    lines += [(_RETURN, 0, 0, _FAIL | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
