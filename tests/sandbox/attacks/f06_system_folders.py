from attack import *

for folder in ["/", "/etc", "/usr", "/usr/bin", "/dev", "/usr/lib/python3", "/lib64"]:
    denied(f"write to {folder}", lambda: os.open(f"{folder}/evil", os.O_CREAT | os.O_WRONLY), "EROFS")
for path in ["/etc/passwd", "/etc/hosts", "/usr/bin/python3"]:
    denied(f"change {path}", lambda: os.open(path, os.O_RDWR), "EROFS", "EACCES")
    denied(f"remove {path}", lambda: os.unlink(path), "EROFS", "EBUSY")
