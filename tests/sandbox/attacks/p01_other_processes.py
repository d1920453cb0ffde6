# outside: breach
from attack import *

seen = [name for name in os.listdir("/proc") if name.isdigit()]
judge(len(seen) > 8, f"{len(seen)} processes are visible")
