# expect: out-of-memory passed
# memory_mib: 64
# Memory that is only read has no page of its own, but it has page tables.
import mmap

from attack import *

SIZE = 48 << 30
PAGE_TABLE_COVERS = 2 << 20
NORESERVE = 0x4000

if mmap.PAGESIZE != 4096:
    # The tables of larger pages are too few to exceed a limit.
    held("the pages are large")
    sys.exit()
held("starting")
memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, mmap.PROT_READ)
for place in range(0, SIZE, PAGE_TABLE_COVERS):
    assert memory[place] == 0
time.sleep(15)
breach("96 MiB of page tables stayed")
