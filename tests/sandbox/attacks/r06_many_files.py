from attack import *

def fill(folder):
    for index in range(64):
        with open(f"{folder}/{index}", "wb", buffering=0) as file:
            for _ in range(32):
                if file.write(bytes(1 << 20)) < 1 << 20:
                    file.write(b"more")

for folder in ["/box", "/tmp", "/dev/shm"]:
    denied(f"write 2 GiB to {folder}", lambda: fill(folder), "ENOSPC")
