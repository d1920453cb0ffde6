# Only as an ordinary user of the host: the sandbox of root has given up its rights before.
from attack import *

denied("set the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()), "EPERM")
denied("set the host name", lambda: socket.sethostname("evil"), "EPERM")
