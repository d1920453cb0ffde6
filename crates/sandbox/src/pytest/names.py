"""Lets a project have modules that are named like modules of the standard library."""

import importlib
import os
import sys

# The interpreter and the runner look these up by name while they run.
KEPT = {
    "__future__", "__main__", "_pytest", "abc", "builtins", "codecs", "encodings", "importlib", "io", "os", "pluggy",
    "pytest", "site", "sys", "threading", "warnings",
}  # fmt: skip
# Modules that import others by name when they are loaded. They are loaded before a name is given up, so that they get the
# standard library's.
LOADED_FIRST = (
    "argparse array ast asyncio base64 bisect calendar cmd code collections concurrent.futures.process "
    "concurrent.futures.thread configparser contextlib copy csv dataclasses datetime decimal difflib doctest email.message "
    "email.mime.multipart email.mime.text enum fnmatch fractions functools getopt getpass gettext glob gzip hashlib heapq "
    "hmac html html.parser http.client http.cookies http.server inspect io ipaddress itertools json locale logging "
    "logging.config logging.handlers math mimetypes multiprocessing multiprocessing.pool operator pathlib pickle platform "
    "pprint queue random re sched secrets select selectors shelve shlex shutil signal socket socketserver sqlite3 ssl "
    "statistics string struct subprocess tarfile tempfile textwrap time timeit tokenize traceback types typing unittest "
    "unittest.mock urllib.error urllib.parse urllib.request uuid weakref xml.dom.minidom xml.etree.ElementTree xml.sax "
    "zipfile zoneinfo"
).split()


def give_up_names(folders):
    """Forgets the modules of the standard library that a project has modules for."""
    wanted = names_in(folders) & set(getattr(sys, "stdlib_module_names", ())) - KEPT
    if not wanted:
        return
    for name in LOADED_FIRST:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    for name in list(sys.modules):
        if name.partition(".")[0] in wanted:
            del sys.modules[name]


def names_in(folders):
    """The names of the modules and packages at the top of some folders."""
    names = set()
    for folder in folders:
        if os.path.isdir(folder):
            for entry in os.scandir(folder):
                if entry.name.endswith(".py"):
                    names.add(entry.name[: -len(".py")])
                elif entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
                    names.add(entry.name)
    return names
