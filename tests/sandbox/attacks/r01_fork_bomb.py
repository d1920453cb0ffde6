# wall: 2
# processes: 64
# expect: passed timed-out
import subprocess

from attack import *

held("lit")
subprocess.Popen(["/usr/bin/bash", "-c", "f(){ f|f& };f"], stderr=subprocess.DEVNULL)
time.sleep(1)
