from attack import *

denied("switch off address randomisation", lambda: syscall(135, 92, 0x0040000), "EPERM")
if MACHINE == "x86_64":
    child = os.fork()
    if child == 0:
        libc.syscall(0x40000000 | 39)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    judge(not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS), f"an x32 call ends with {status}")
