# outside: breach
from attack import *

opened = []
for number in range(3, 1024):
    try:
        os.fstat(number)
        opened.append((number, os.readlink(f"/proc/self/fd/{number}")))
    except OSError:
        pass
judge(opened, f"inherited descriptors: {opened}")
