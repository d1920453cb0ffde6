"""What the attacks share: how one says whether the sandbox held.

Every attack prints a line for each attempt: `held`, `BREACH`, or `UNEXPECTED` when it failed for a reason that has
nothing to do with the sandbox.
"""

import ctypes
import errno
import os
import platform
import signal
import socket
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
MACHINE = platform.machine()


def held(why):
    print(f"held: {why}", flush=True)


def breach(what):
    print(f"BREACH: {what}", flush=True)


def judge(is_breach, what):
    """Decides about a breach that was looked for."""
    if is_breach:
        breach(what)
    else:
        held(f"it is not so: {what}")


def denied(what, attempt, *names):
    """Makes an attempt, which must fail with one of these errors."""
    try:
        result = attempt()
    except OSError as error:
        name = errno.errorcode.get(error.errno, str(error.errno))
        if name in names:
            held(f"{what}: {name}")
        else:
            print(f"UNEXPECTED: {what}: {error}", flush=True)
    else:
        breach(f"{what}: {result!r}"[:200])


def syscall(x86_64, aarch64, *arguments):
    """Makes a system call by its number on this processor."""
    number = {"x86_64": x86_64, "aarch64": aarch64}[MACHINE]
    result = libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def env(name):
    """A target on the host, as the harness names it."""
    return os.environ[name]
