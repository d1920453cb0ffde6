# processes: 64
from attack import *

children = 0
try:
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(60)
        children += 1
except BlockingIOError:
    pass
judge(children >= 64, f"{children} processes")
