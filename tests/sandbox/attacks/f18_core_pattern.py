# Never opened for writing: on a host without protection that alone would be harm.
from attack import *

for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches"]:
    judge(os.access(path, os.W_OK), f"{path} is writable")
judge(os.stat("/proc/sys/kernel/core_pattern").st_uid == os.getuid(), "its owner is the program's user")
