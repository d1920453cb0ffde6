import resource

from attack import *

judge(resource.getrlimit(resource.RLIMIT_CORE)[1] != 0, "core files may be written")
for name in ["CORE", "NOFILE", "NPROC", "FSIZE", "DATA", "AS", "CPU", "MEMLOCK", "MSGQUEUE"]:
    limit = getattr(resource, f"RLIMIT_{name}")
    try:
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        breach(f"raised {name}")
    except (ValueError, PermissionError):
        held(f"raise {name}")
