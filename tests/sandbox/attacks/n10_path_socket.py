# outside: breach
from attack import *

for path in [env("HOST_SOCKET"), "/var/run/docker.sock", "/run/dbus/system_bus_socket"]:
    denied(f"connect to {path}", lambda: socket.socket(socket.AF_UNIX).connect(path), "ENOENT")
