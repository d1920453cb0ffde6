# expect: timed-out
# wall: 1
from attack import *

held("asleep")
time.sleep(600)
