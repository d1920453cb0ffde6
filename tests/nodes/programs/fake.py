"""A coding agent that needs no model. Its first argument says how it behaves."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ANSWER = {"colour": "teal", "count": 2}
DONE = json.dumps(ANSWER)


def say(**event):
    print(json.dumps(event), flush=True)


def claude(session="s"):
    say(type="system", subtype="init", session_id=session, model="claude-test", tools=["Write"])
    work = {"type": "tool_use", "id": "t1", "name": "Write", "input": {"path": "made.txt"}}
    say(type="assistant", message={"content": [{"type": "text", "text": "I write it."}, work]})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "written"}
    say(type="user", message={"content": [result]})
    usage = {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 7}
    say(type="result", subtype="success", is_error=False, result=DONE, total_cost_usd=0.25, usage=usage)


def codex(session="t"):
    say(type="thread.started", thread_id=session)
    say(type="turn.started")
    item = {"id": "i1", "type": "file_change", "changes": [{"path": "made.txt", "kind": "add"}], "status": "completed"}
    say(type="item.completed", item=item)
    say(type="item.completed", item={"id": "i2", "type": "agent_message", "text": DONE})
    say(type="turn.completed", usage={"input_tokens": 150, "cached_input_tokens": 50, "output_tokens": 7})


def gemini(session="s"):
    say(type="init", session_id=session, model="gemini-test")
    say(type="tool_use", tool_name="write_file", tool_id="w1", parameters={"path": "made.txt"})
    say(type="tool_result", tool_id="w1", status="success")
    for piece in (DONE[:9], DONE[9:]):
        say(type="message", role="assistant", content=piece, delta=True)
    stats = {"total_tokens": 157, "input_tokens": 150, "output_tokens": 7, "cached": 50}
    say(type="result", status="success", stats=stats)


def any_command(session=None):
    print("working")
    usage = {"input_tokens": 150, "cached_input_tokens": 50, "output_tokens": 7, "cost_usd": 0.25, "model": "own"}
    print(json.dumps({**ANSWER, "usage": usage, **({"session_id": session} if session else {})}))


def hang():
    sleeper = ["sleep", sys.argv[2]]
    subprocess.Popen(sleeper)
    subprocess.Popen(sleeper, start_new_session=True)
    say(type="system", subtype="init", model="claude-test")
    time.sleep(600)


def flood():
    while True:
        print("x" * 65536)


def fork():
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for _ in range(5):
        subprocess.Popen(["sleep", sys.argv[2]], start_new_session=True, **quiet)
    print(DONE)


def outside():
    for path in sys.argv[2:]:
        try:
            with open(path, "w") as file:
                file.write("written\n")
        except OSError:
            pass
    print(DONE)


def mend(prompt, wrong=1):
    """Gives half of an answer as often as this, and then the whole one."""
    with open("runs.txt", "a+") as file:
        file.write("run\n")
        file.seek(0)
        runs = len(file.readlines())
    print(DONE if "cannot be used" in prompt and runs > wrong else DONE[:15])


def given_session():
    """Returns the session that the arguments or the environment name."""
    for option in ("--resume", "resume"):
        if option in sys.argv:
            return sys.argv[sys.argv.index(option) + 1]
    return os.environ.get("GRAPHRUN_SESSION")


def in_session(prompt):
    """Notes the prompt in the file of its session, and answers with the number of its turns."""
    global DONE
    protocol, quirk, given = sys.argv[2], sys.argv[3], given_session()
    # As a coding agent does in a sandbox, where the work folder is a new one each time.
    sessions = os.path.join(os.environ["HOME"], "sessions") if os.path.isdir("/box") else "sessions"
    os.makedirs(sessions, exist_ok=True)
    session = given or f"session-{len(os.listdir(sessions)) + 1}"
    path = os.path.join(sessions, session)
    if quirk in ("buries", "nests"):
        # No path reaches the innermost folder.
        os.chdir(os.environ["HOME"])
        for _ in range(30 if quirk == "buries" else 1500):
            os.makedirs("n" * 200, exist_ok=True)
            os.chdir("n" * 200)
        for number in range(200 if quirk == "buries" else 0):
            write_bytes(str(number))
        os.chdir("/box")
    if quirk == "hides":
        os.mkdir(f"{path}.hidden", 0o300)
    if quirk == "hoards":
        for number in itertools.count():
            write_bytes(f"{path}.{number}")
    if given and (quirk == "forgets" or not os.path.exists(path)):
        print(f"no conversation {given}", file=sys.stderr)
        sys.exit(1)
    with open(path, "a") as file:
        file.write(json.dumps(prompt) + "\n")
    with open(path) as file:
        turns = len(file.readlines())
    if quirk == "dies" and turns == 2:
        os.kill(os.getppid(), signal.SIGKILL)
        sys.exit(1)
    ANSWER["count"] = turns if quirk != "forgets" else len(os.listdir(sessions))
    DONE = json.dumps(ANSWER)
    if quirk == "halves" and turns == 1:
        DONE = DONE[:15]
    {"claude": claude, "codex": codex, "gemini": gemini, "json": any_command}[protocol](session)


def write_bytes(path):
    with open(path, "wb") as file:
        file.write(os.urandom(1 << 20))


def seeks(name):
    """Looks for the value of a variable in the own environment, and in all that other processes show."""
    value = os.environ.get(name, "").encode()
    shown = []
    for process in (it for it in os.listdir("/proc") if it.isdigit() and int(it) != os.getpid()):
        for part in ("environ", "cmdline"):
            try:
                with open(f"/proc/{process}/{part}", "rb") as file:
                    shown.append(file.read())
            except OSError:
                pass
    print(json.dumps({"has": bool(value), "elsewhere": any(value and value in it for it in shown), "seen": len(shown)}))


def leaks(name, path="made.txt"):
    """Writes a secret into a file, or into its name."""
    secret = os.environ[name]
    os.makedirs("src", exist_ok=True)
    with open(path.format(secret), "w") as file:
        file.write(secret if path == "made.txt" else "")
    print(DONE)


def large():
    with open("made.log", "w") as file:
        file.write("x" * (10 << 20))
    print(DONE)


def names():
    os.makedirs("src", exist_ok=True)
    for path in ("src/plain.md", "src/a:b", "src/-dash"):
        write(path)
    print(DONE)


def deep():
    write("src/main/java/com/acme/app/service/impl/Größe.java")
    write("src/plain.md")
    os.link("src/plain.md", "src/second.md")
    print(DONE)


def refactor(*then):
    """Renames a module, and removes a folder and everything else that it finds."""
    os.rename("src/old.py", "src/new.py")
    shutil.rmtree("src/gone")
    os.remove("kept.txt")
    for step in then:
        {"fails": lambda: sys.exit(3), "hangs": lambda: time.sleep(600)}[step]()
    print(DONE)


def write(path):
    with open(path, "w") as file:
        file.write("written\n")


def states(usage):
    """Answers with a usage, which is JSON."""
    print(json.dumps({**ANSWER, "usage": json.loads(usage)}))


def main():
    prompt, mode = sys.stdin.read(), sys.argv[1]
    if mode in ("claude", "codex", "gemini", "json"):
        with open("made.txt", "w") as file:
            file.write(prompt.splitlines()[0] + "\n")
        with open("lost.txt", "w") as file:
            file.write("lost\n")
        {"claude": claude, "codex": codex, "gemini": gemini, "json": any_command}[mode]()
    elif mode == "half":
        print(DONE[:15])
    elif mode == "wrong":
        print('{"colour": 7}')
    elif mode == "fail":
        print("no such branch", file=sys.stderr)
        sys.exit(3)
    elif mode == "says":
        print(json.dumps(os.environ.get(sys.argv[2], "unset")))
    elif mode == "session":
        in_session(prompt)
    elif mode in ("seeks", "leaks"):
        {"seeks": seeks, "leaks": leaks}[mode](*sys.argv[2:])
    elif mode == "mend":
        mend(prompt, *map(int, sys.argv[2:]))
    elif mode == "refactor":
        refactor(*sys.argv[2:])
    elif mode == "states":
        states(sys.argv[2])
    else:
        modes = (hang, flood, fork, outside, large, names, deep)
        {it.__name__: it for it in modes}[mode]()


main()
