import os
import pty
import subprocess

assert subprocess.run("echo $((6 * 7)) | cat", shell=True, capture_output=True, text=True).stdout == "42\n"
assert subprocess.run(["sleep", "0"]).returncode == 0
child, terminal = pty.fork()
if child == 0:
    os.execvp("tty", ["tty"])
assert os.read(terminal, 100).startswith(b"/dev/pts/")
os.waitpid(child, 0)
