"""Keeps code of the project out of this process, where tests start it as a program."""

import ast
import os
import sys


def refuse_foreign_code():
    """Refuses every attempt to run code from outside the runner, its packages and the fixed tests. Cannot be undone."""
    roots = tuple(
        {os.path.realpath(path).rstrip("/") + "/" for path in ("/usr", "/env", "/graphrun", sys.base_prefix, sys.prefix)}
    )
    # It makes a tree of a text and no code. The library of the tests shows with it where a test has failed.
    getframe, parse = sys._getframe, ast.parse.__code__
    realpath, get_code_name = os.path.realpath, lambda code: getattr(code, "co_filename", "")

    def check(name):
        if not isinstance(name, (str, bytes)):
            return
        name = os.fsdecode(name)
        if name.startswith("<") or not name or realpath(name).startswith(roots):
            return
        raise ImportError(f"the code {name} is not loaded: isolated tests run the code under test as a program")

    def hook(event, arguments):
        if event == "exec":
            check(get_code_name(arguments[0]))
        elif event == "compile":
            if getframe(1).f_code is not parse:
                check(arguments[1])
        elif event == "import" and arguments[1]:
            check(arguments[1])
        elif event == "ctypes.dlopen" and arguments[0] and "/" in str(arguments[0]):
            check(arguments[0])
        elif event == "pickle.find_class":
            raise ImportError("isolated tests cannot unpickle: a pickle runs code of whoever wrote it")

    sys.addaudithook(hook)
