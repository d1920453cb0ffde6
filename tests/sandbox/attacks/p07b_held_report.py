# wall: 8
# at_most: 2
# Opens the pipes of the shell above through /proc and holds them.
from attack import *

for number in range(3, 8):
    try:
        os.open(f"/proc/{os.getppid()}/fd/{number}", os.O_WRONLY)
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
held("a daemon holds the pipes")
