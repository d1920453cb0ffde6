# expect: out-of-memory
# memory_mib: 256
# Shared anonymous memory is in no limit of a process.
import mmap

from attack import *

held("starting")
block = mmap.mmap(-1, 2 << 30)
for offset in range(0, 2 << 30, 4096):
    block[offset] = 1
time.sleep(60)
