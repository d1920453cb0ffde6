from attack import *

denied("set up io_uring", lambda: syscall(425, 425, 8, ctypes.create_string_buffer(256)), "EPERM")
