# outside: breach
from attack import *

denied("connect to a service of the host", lambda: socket.create_connection(("127.0.0.1", int(env("HOST_PORT"))), 2), "ECONNREFUSED")
