# Whoever removes or walks this by recursion overflows its stack; nobody has to.
from attack import *

for _ in range(5000):
    os.mkdir("d")
    os.chdir("d")
os.chmod("/box/d", 0)
held("5000 folders deep")
