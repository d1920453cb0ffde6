from attack import *

for process in ["1", "2", str(os.getppid()), "self"]:
    denied(f"read the secret below /proc/{process}/root", lambda: open(f"/proc/{process}/root{env('HOST_SECRET')}").read(), "ENOENT", "EACCES")
for number in range(3, 64):
    if os.path.exists(f"/proc/1/fd/{number}") and os.path.isdir(f"/proc/1/fd/{number}"):
        breach(f"process 1 holds a folder: {os.readlink(f'/proc/1/fd/{number}')}")
