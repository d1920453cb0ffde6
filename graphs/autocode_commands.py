"""Runs the commands of a sub-task in the sandbox, one a line of the standard input, without a shell.

The workflow has already removed those that are not on its allow-list. Prints {"ok": …, "output": …} as JSON.
"""

import json
import shlex
import subprocess
import sys

KEPT = 3000


def run(line):
    """Returns whether the command succeeded, and the end of what it printed."""
    words = shlex.split(line)
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    try:
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        return False, str(error)
    return ended.returncode == 0, ended.stdout[-KEPT:]


for line in filter(None, map(str.strip, sys.stdin)):
    try:
        ok, output = run(line)
    except ValueError as error:
        ok, output = False, str(error)
    if not ok:
        print(json.dumps({"ok": False, "output": f"`{line}` failed: {output}"}))
        break
else:
    print(json.dumps({"ok": True, "output": ""}))
