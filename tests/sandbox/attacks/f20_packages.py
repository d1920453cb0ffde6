from attack import *

denied("plant code in the mounted packages", lambda: os.open("/env/evil.pth", os.O_CREAT | os.O_WRONLY), "EROFS")
denied("change a mounted file", lambda: os.open("/env/module.py", os.O_RDWR), "EROFS", "EACCES")
denied("change its mode", lambda: os.chmod("/env/module.py", 0o777), "EROFS", "EPERM")
