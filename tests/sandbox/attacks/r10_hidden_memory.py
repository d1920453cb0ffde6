# outside: breach
# Memory that belongs to no process is in no limit of one.
from attack import *

REMOVE = 0


def segment(size):
    result = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
    if result < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    libc.shmctl(result, REMOVE, None)
    return result


def queue():
    result = libc.msgget(0, 0o1600)
    if result < 0:
        raise OSError(ctypes.get_errno(), "msgget")
    libc.msgctl(result, REMOVE, None)
    return result


def semaphores(number):
    result = libc.semget(0, number, 0o1600)
    if result < 0:
        raise OSError(ctypes.get_errno(), "semget")
    libc.semctl(result, 0, REMOVE)
    return result


denied("a file in memory", lambda: os.memfd_create("x"), "ENOSYS")
denied("a large segment", lambda: segment(100 << 20), "EPERM")
denied("a queue of messages", queue, "EPERM")
denied("many semaphores", lambda: semaphores(32000), "EPERM")
denied("one semaphore", lambda: semaphores(1), "EPERM")
held(f"a small segment, {segment(4096)}, is allowed")
