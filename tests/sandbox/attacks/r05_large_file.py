from attack import *

def fill():
    with open("large", "wb", buffering=0) as file:
        for _ in range(2048):
            if file.write(bytes(1 << 20)) < 1 << 20:
                file.write(b"more")

denied("write 2 GiB to a file", fill, "EFBIG", "ENOSPC")
denied("make a sparse file of a terabyte", lambda: os.truncate("large", 1 << 40), "EFBIG")
