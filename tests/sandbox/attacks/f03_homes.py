from attack import *

for path in ["/root", "/home", "/root/.ssh/id_rsa", "/var", "/srv", "/opt", "/mnt", "/run", "/sys", "/boot"]:
    denied(f"look into {path}", lambda: os.stat(path), "ENOENT")
judge(os.listdir(os.path.expanduser("~")), "somebody lives in the home folder")
