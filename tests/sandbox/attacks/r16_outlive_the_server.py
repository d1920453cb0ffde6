# Where memory runs out, the kernel is to end this rather than the server.
from attack import *

path = "/proc/self/oom_score_adj"
with open(path) as file:
    judge(int(file.read()) < 500, "is as dear to the kernel as its server")


def lower():
    with open(path, "w") as file:
        file.write("0")


denied("lower the score", lower, "EROFS", "EACCES")
