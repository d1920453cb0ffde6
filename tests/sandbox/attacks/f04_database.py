# outside: breach
from attack import *

denied("read the checkpoints", lambda: open(env("HOST_DATABASE"), "rb").read(), "ENOENT")
denied("change the checkpoints", lambda: os.open(env("HOST_DATABASE"), os.O_RDWR), "ENOENT")
