# An address for documentation: it answers nobody, and without a route the answer is immediate.
from attack import *

start = time.monotonic()
denied("connect to the Internet", lambda: socket.create_connection(("192.0.2.1", 80), 5), "ENETUNREACH")
judge(time.monotonic() - start > 1, "the refusal takes its time")
