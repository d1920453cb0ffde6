# The harness looks whether its process lives.
from attack import *

denied("kill a process of the host", lambda: os.kill(int(env("HOST_VICTIM")), signal.SIGKILL), "ESRCH", "EPERM")
