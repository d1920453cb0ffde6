from attack import *

try:
    block = bytearray(8 << 30)
    breach("8 GiB in one block")
except MemoryError:
    held("MemoryError")
