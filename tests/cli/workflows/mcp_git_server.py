"""Makes a repository with one commit in the sandbox, and becomes the server of it."""

import os
import subprocess

REPOSITORY = "/box/repo"


def git(*words):
    subprocess.run(["git", "-C", REPOSITORY, *words], check=True, stdout=subprocess.DEVNULL)


os.mkdir(REPOSITORY)
git("init", "--quiet", "--initial-branch", "main")
git("config", "user.name", "Test")
git("config", "user.email", "test@example.com")
with open(f"{REPOSITORY}/notes.txt", "w") as file:
    file.write("first\n")
git("add", "notes.txt")
git("commit", "--quiet", "--message", "begin the notes")
os.execvp("python3", ["python3", "-m", "mcp_server_git", "--repository", REPOSITORY])
