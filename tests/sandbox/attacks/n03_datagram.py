# outside: breach
from attack import *

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(0.5)
sock.connect(("127.0.0.1", int(env("HOST_UDP_PORT"))))
try:
    sock.send(b"leak")
    judge(sock.recv(100) == b"leak", "a datagram came back")
except (ConnectionRefusedError, TimeoutError) as error:
    held(f"send a datagram to the host: {error}")
