from attack import *

denied("make a vsock socket", lambda: socket.socket(40, socket.SOCK_STREAM), "EPERM")
denied("make a packet socket", lambda: socket.socket(17, socket.SOCK_RAW), "EPERM")
denied("make a netlink socket", lambda: socket.socket(16, socket.SOCK_RAW), "EPERM")
denied("make a bluetooth socket", lambda: socket.socket(31, socket.SOCK_RAW, 1), "EPERM")
