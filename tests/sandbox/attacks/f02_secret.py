# outside: breach
from attack import *

denied("read a secret of the host", lambda: open(env("HOST_SECRET")).read(), "ENOENT")
denied("list its folder", lambda: os.listdir(os.path.dirname(env("HOST_SECRET"))), "ENOENT")
