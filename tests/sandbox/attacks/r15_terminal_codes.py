from attack import *

held("printing")
os.write(1, b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x00\xff\xfe\r\x9b31m" + "\u202etxt.exe".encode() + b"\n" + b"x" * 100_000 + b"\n")
