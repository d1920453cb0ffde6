from attack import *

denied("link a secret into the work folder", lambda: os.link(env("HOST_SECRET"), "mine"), "ENOENT")
denied("link a program into the work folder", lambda: os.link("/usr/bin/python3", "python"), "EXDEV")
