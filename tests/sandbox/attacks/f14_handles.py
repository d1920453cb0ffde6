from attack import *

handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0", 64)
denied("open by handle", lambda: syscall(304, 265, os.open("/usr", os.O_RDONLY), handle, os.O_RDONLY), "EPERM")
