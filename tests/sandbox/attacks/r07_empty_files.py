# expect: out-of-memory
# wall: 20
from attack import *

held("starting")
for index in range(5_000_000):
    os.close(os.open(f"/tmp/{index}", os.O_CREAT | os.O_WRONLY))
breach("5 million files")
