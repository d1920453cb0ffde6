from attack import *

for path in ["/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/kvm", "/dev/vsock", "/dev/disk"]:
    denied(f"look at {path}", lambda: os.stat(path), "ENOENT")
denied("make a device", lambda: os.mknod("/box/disk", 0o600 | 0o060000, os.makedev(254, 0)), "EPERM")
for path in ["/proc/kcore", "/proc/kmsg"]:
    denied(f"open {path}", lambda: os.open(path, os.O_RDONLY), "ENOENT", "EACCES", "EPERM")
