from attack import *

for line in open("/proc/self/status"):
    if line.startswith("Cap"):
        judge(int(line.split()[1], 16) != 0, line.strip())
denied("become root", lambda: os.setuid(0), "EPERM", "EINVAL")
