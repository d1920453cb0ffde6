# wall: 8
# at_most: 2
from attack import *

if os.fork() == 0:
    os.setsid()
    time.sleep(600)
held("a daemon holds the output")
