# outside: breach
from attack import *

names = [line.split(":")[0] for line in open("/etc/passwd")]
judge(names != ["root", "box"], f"accounts: {names}")
for path in ["/etc/shadow", "/etc/sudoers", "/etc/machine-id", "/etc/resolv.conf", "/etc/ssh"]:
    denied(f"look at {path}", lambda: os.stat(path), "ENOENT")
