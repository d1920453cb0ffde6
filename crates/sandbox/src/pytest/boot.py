"""Starts the runner inside the sandbox, before any file of the project can take part.

The host mounts this file, its siblings and the settings read-only below /graphrun, outside the project's folder. The
process starts with `-I -S`, so neither the environment nor a `sitecustomize` of the project runs before this line.
"""

import sys

HERE = "/graphrun/boot"


def load(name, prepare=lambda code: None):
    """Runs a sibling of this file and returns its names."""
    path = f"{HERE}/{name}.py"
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    prepare(code)
    names = {"__name__": f"graphrun_{name}", "__file__": path}
    exec(code, names)
    return names


def find_packages():
    """Adds the packages of the environment to the search path, and nothing of the project."""
    import site

    sys.path[:] = [path for path in sys.path if not is_generated(path)]
    site.venv(set())
    site.setquit()
    site.setcopyright()
    site.sethelper()
    sys.path[:] = [path for path in sys.path if not is_generated(path)]


def is_generated(path):
    """Whether a path is the project's, or relative to a folder that may be the project's."""
    return not path.startswith("/") or path == "/box" or path.startswith("/box/")


def main():
    """Runs the tests and ends the process. The last record goes out after the last check."""
    sys.dont_write_bytecode = True
    seal = load("seal")["open_seal"]()
    seal.trust(main.__code__)
    find_packages()
    import json
    import os

    with open("/graphrun/settings.json", encoding="utf-8") as file:
        settings = json.load(file)
    import pytest

    exit_now, flush, run = os._exit, (sys.stdout.flush, sys.stderr.flush), pytest.main
    is_isolated = settings["proof"] == "isolated"
    if is_isolated:
        os.environ["PYTHONPATH"] = "/box:/box/src"
    seal.emit("start", "isolated" if is_isolated and seal.is_private else "in_process")
    plugin, finish = load("plugin", seal.trust)["make_plugin"](load, seal, settings)
    seal.close()
    code = int(run(settings["arguments"] + settings["tests"], plugins=[plugin]))
    finish(code)
    for stream in flush:
        stream()
    exit_now(code)


# Processes that tests start with `multiprocessing` load this file again, under another name.
if __name__ == "__main__":
    main()
