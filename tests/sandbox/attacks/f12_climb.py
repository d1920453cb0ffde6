# outside: breach
from attack import *

folder = os.open(".", os.O_RDONLY)
for _ in range(50):
    folder = os.open("..", os.O_RDONLY, dir_fd=folder)
denied("climb out", lambda: os.open(env("HOST_SECRET").lstrip("/"), os.O_RDONLY, dir_fd=folder), "ENOENT")
