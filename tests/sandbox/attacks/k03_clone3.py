from attack import *

arguments = (ctypes.c_uint64 * 11)(0x10000000)
denied("clone3 into a user namespace", lambda: syscall(435, 435, arguments, ctypes.sizeof(arguments)), "ENOSYS")
