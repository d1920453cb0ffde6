# outside: breach
from attack import *

fixed = set("PATH HOME TMPDIR LANG CI NO_COLOR PWD OLDPWD SHLVL _ LC_CTYPE".split())
ours = {"HOST_PORT", "HOST_UDP_PORT", "HOST_ABSTRACT", "HOST_SOCKET", "HOST_SECRET", "HOST_DATABASE", "HOST_VICTIM", "RUN_MARKER"}
foreign = [name for name in os.environ if name not in fixed | ours and not name.startswith("PYTHON")]
judge(foreign, f"variables of the host: {foreign}")
