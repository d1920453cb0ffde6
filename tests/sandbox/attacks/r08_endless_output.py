# expect: output-limit
from attack import *

held("starting")
while True:
    os.write(1, b"A" * 65536)
