# expect: out-of-memory
# memory_mib: 256
from attack import *

held("starting")
for _ in range(8):
    if os.fork() == 0:
        block = bytearray(b"x") * (180 << 20)
        time.sleep(60)
time.sleep(60)
