# outside: breach
from attack import *

denied("connect to an abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\0" + env("HOST_ABSTRACT")), "ECONNREFUSED")
