# expect: timed-out
# wall: 1
from attack import *

for name in range(1, 32):
    try:
        signal.signal(name, signal.SIG_IGN)
    except OSError:
        pass
held("deaf to all signals")
while True:
    time.sleep(1)
