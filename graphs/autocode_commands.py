"""Runs the commands of a sub-task in the sandbox, one after the other and without a shell.

They are a JSON list of texts on the standard input; the workflow has already removed those that are not on its allow-list.
Prints {"ok": ..., "output": ...} as JSON.
"""

import json
import shlex
import subprocess
import sys

KEPT = 3000


def run(command):
    """Returns whether the command succeeded, and the end of its output."""
    try:
        words = shlex.split(command)
        if words[0] in ("python", "python3"):
            words[0] = sys.executable
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except (OSError, ValueError) as error:
        return False, str(error)
    return ended.returncode == 0, ended.stdout[-KEPT:]


for command in json.load(sys.stdin):
    ok, output = run(command)
    if not ok:
        print(json.dumps({"ok": False, "output": f"`{command}` failed: {output}"}))
        break
else:
    print(json.dumps({"ok": True, "output": ""}))
