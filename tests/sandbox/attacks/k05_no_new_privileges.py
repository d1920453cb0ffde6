# outside: breach
from attack import *

status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
judge(status["NoNewPrivs"] != "1", f"NoNewPrivs is {status['NoNewPrivs']}")
judge(status["Seccomp"] != "2", f"Seccomp is {status['Seccomp']}")
judge(os.getuid() != 1000 or os.geteuid() != 1000 or set(os.getgroups()) - {1000, 65534}, f"user {os.getuid()}, groups {os.getgroups()}")
