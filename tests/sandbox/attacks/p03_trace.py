from attack import *

child = os.fork()
if child == 0:
    time.sleep(30)
PTRACE_ATTACH = 16
denied("trace a process", lambda: syscall(101, 117, PTRACE_ATTACH, child, 0, 0), "EPERM")
denied("read its memory", lambda: syscall(310, 270, child, 0, 0, 0, 0, 0), "EPERM")
os.kill(child, signal.SIGKILL)
