# expect: signaled
# Kills the shell above it, too; the host must call it what it is, and its own processes must live.
from attack import *

held("about to kill everything")
os.kill(-1, signal.SIGKILL)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(30)
