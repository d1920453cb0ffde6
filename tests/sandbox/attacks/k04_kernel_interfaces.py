from attack import *

zeros = ctypes.create_string_buffer(256)
denied("bpf", lambda: syscall(321, 280, 0, zeros, 72), "EPERM")
denied("perf_event_open", lambda: syscall(298, 241, zeros, 0, -1, -1, 0), "EPERM")
denied("userfaultfd", lambda: syscall(323, 282, 1), "EPERM")
denied("keyctl", lambda: syscall(250, 219, 0, -3, 0), "EPERM")
denied("add_key", lambda: syscall(248, 217, b"user", b"x", b"y", 1, -3), "EPERM")
denied("kcmp", lambda: syscall(312, 272, os.getpid(), 1, 1, 0, 0), "EPERM")
denied("syslog", lambda: syscall(103, 116, 3, zeros, 256), "EPERM")
