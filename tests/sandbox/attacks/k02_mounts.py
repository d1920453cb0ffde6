from attack import *

denied("mount", lambda: syscall(165, 40, b"tmpfs", b"/box", b"tmpfs", 0, 0), "EPERM")
denied("unmount", lambda: syscall(166, 39, b"/box", 2), "EPERM")
denied("open a tree", lambda: syscall(428, 428, -100, b"/", 1), "EPERM")
denied("open a file system", lambda: syscall(430, 430, b"tmpfs", 0), "EPERM")
denied("change a mount", lambda: syscall(442, 442, -100, b"/", 0, ctypes.create_string_buffer(32), 32), "EPERM")
denied("change the root", lambda: syscall(161, 51, b"/box"), "EPERM")
denied("pivot the root", lambda: syscall(155, 41, b"/box", b"/box"), "EPERM")
