from attack import *

opened = []
def fill():
    for _ in range(100_000):
        opened.append(os.open("/dev/null", os.O_RDONLY))

denied("open 100,000 files", fill, "EMFILE")
judge(len(opened) > 1024, f"{len(opened)} were opened")
