"""The channel to the host: records in order, each authenticated by a key that no file and no variable holds.

The host writes the key to standard input before any code of the project runs. A record is a line: its code, a space and
its fields. The code covers the record and all records before it, so none can be dropped, added or moved.
"""

import fcntl
import hashlib
import os
import sys
import threading

RECORDS = 3
BLOCK = 64
PR_SET_DUMPABLE = 4


class Seal:
    """What the runner may do with the channel."""

    __slots__ = ("close", "emit", "is_private", "trust")

    def __init__(self, emit, is_private, trust, close):
        self.emit, self.is_private, self.trust, self.close = emit, is_private, trust, close


def make_private():
    """Closes this process's memory and descriptors to all processes of the same user. Says whether that worked."""
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).prctl
        return call(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def read_key():
    """Reads the key to its end and takes standard input away."""
    parts = []
    while part := os.read(0, 4096):
        parts.append(part)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return b"".join(parts)


def open_seal():
    """Takes over the channel. The key lives on only inside two states of a hash function."""
    is_private = make_private()
    key = read_key().ljust(BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))
    del key
    # Above the numbers that programs close by habit, and closed in every program that is started from here.
    descriptor = fcntl.fcntl(RECORDS, fcntl.F_DUPFD_CLOEXEC, 300 + os.urandom(1)[0])
    os.close(RECORDS)
    write, getpid, lock = os.write, os.getpid, threading.Lock()
    owner = getpid()
    last, callers, is_open, getframe = [b""], set(), [True], sys._getframe
    code_type = type(make_private.__code__)

    def trust(code):
        """Lets a code object and those inside it send records, until the channel is closed to further ones."""
        if is_open:
            callers.add(code)
            for constant in code.co_consts:
                if isinstance(constant, code_type):
                    trust(constant)

    def emit(*fields):
        if getpid() != owner:
            return
        if getframe(1).f_code not in callers:
            fields = ("tampered", "the channel of the runner was used by other code")
        text = "\t".join([field.replace("\t", " ").replace("\n", " ") for field in fields])
        record = text.encode("utf-8", "replace")
        with lock:
            state = inner.copy()
            state.update(last[0] + record)
            result = outer.copy()
            result.update(state.digest())
            last[0] = result.hexdigest().encode()
            line = last[0] + b" " + record + b"\n"
            while line:
                line = line[write(descriptor, line) :]

    return Seal(emit, is_private, trust, is_open.clear)
