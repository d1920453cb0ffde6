"""The plugin of pytest that reports to the host what was found, what ran and what returned.

The host decides. It counts a test as passed only if the test is in the list that was made before any code of the project
ran, or was collected besides; if its own frame returned; and if pytest reports the same.
"""

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import stat
import sys

import _pytest.assertion.rewrite
import pytest


class Witness:
    """Sees the frame of one test begin and end."""

    __slots__ = ("_enter", "_exit")

    def __init__(self, enter, leave):
        self._enter, self._exit = enter, leave

    def __enter__(self):
        self._enter()

    def __exit__(self, kind, error, trace):
        self._exit(kind)
        return False


class TestFile:
    """A test file as it was before any code of the project ran."""

    __slots__ = ("code", "error", "expected", "name", "path", "source")

    def __init__(self, path, name, source):
        self.path, self.name, self.source = path, name, source
        self.code, self.error, self.expected = None, None, {}


def read_regular(path):
    """The bytes of a regular file, or nothing where something else lies there."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def place_of(path):
    """The folder from which a file is imported, and its name as a module."""
    folder, name = os.path.split(path)
    parts = [name[: -len(".py")]]
    while os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.basename(folder).isidentifier():
        folder, package = os.path.split(folder)
        parts.insert(0, package)
    return folder, ".".join(parts)


def unique_name(name, path, taken):
    """A name of a module that no other test file has."""
    if name in taken or name in sys.modules:
        name = "graphrun_test_" + path[1 : -len(".py")].replace("/", "_").replace(".", "_").replace("-", "_")
    while name in taken:
        name += "_"
    return name


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports test files from their compiled form, by whatever name and from whatever module."""

    def __init__(self, files):
        self.by_name = {file.name: file for file in files}
        self.by_path = {file.path: file for file in files}

    def find_spec(self, fullname, path=None, target=None):
        file = self.by_name.get(fullname)
        if file is None:
            last = fullname.rpartition(".")[2]
            if not (last.startswith("test_") or last.endswith("_test")):
                return None
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            file = self.by_path.get(spec.origin) if spec else None
        if file is None:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=file.path)
        spec.has_location = True
        spec.loader_state = file
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = module.__spec__.loader_state
        if file.error is not None:
            raise file.error.with_traceback(None)
        exec(file.code, module.__dict__)


def make_plugin(load, seal, settings):
    """Returns the plugin, and the function that makes the last checks and sends the last record."""
    emit, getframe, gettrace, getpid = seal.emit, sys._getframe, sys.gettrace, os.getpid
    owner, watch, expected_of = getpid(), load("watch"), load("expected")["compile_witnessed"]
    paths, is_isolated = settings["tests"], settings["proof"] == "isolated"
    exit_code = Witness.__exit__.__code__
    own_trace, running, files, pictures = gettrace(), [None], [], []

    def check_library():
        changed = pictures[2].find_difference()
        if changed is not None:
            emit("tampered", changed + " was replaced")

    def check_assertions():
        changed = pictures[1].find_difference()
        if changed is None and gettrace() is not own_trace:
            changed = "sys.settrace"
        if changed is not None:
            emit("tampered", changed + " was replaced")

    def make_witness(path):
        def make(name, codes):
            identity = f"{path}::{name}"
            open_frames = []

            def enter():
                if getframe(2).f_code in codes:
                    open_frames.append(running[0])
                    check_assertions()
                    check_library()

            def leave(kind):
                is_own_call = getframe(1).f_code is exit_code and getframe(2).f_code in codes
                if not is_own_call or getpid() != owner:
                    return
                check_assertions()
                item = open_frames.pop() if open_frames else None
                if running[0] is None:
                    return
                if kind is None and item == running[0]:
                    emit("returned", item, identity)
                elif kind is None or not kind.__module__.startswith("hypothesis."):
                    emit("raised", running[0], identity)

            return Witness(enter, leave)

        return make

    def read_tests():
        taken, folders = set(), []
        for path in paths:
            folder, name = place_of(path)
            name = unique_name(name, path, taken)
            taken.add(name)
            if folder not in sys.path:
                folders.append(folder)
            file = TestFile(path, name, read_regular(path))
            files.append(file)
            try:
                file.expected, file.code = expected_of(
                    file.source, path, _pytest.assertion.rewrite.rewrite_asserts, make_witness(path)
                )
            except (SyntaxError, ValueError, RecursionError) as error:
                file.error = error
            for test, is_certain in file.expected.items():
                emit("expected" if is_certain else "conditional", f"{path}::{test}")
        return list(dict.fromkeys(folders))

    def let_project_in():
        """The last moment of which it is certain that no code of the project has run."""
        folders = read_tests()
        pictures[:] = [watch[name]() for name in ("picture_of_runner", "picture_of_assertions", "picture_of_library")]
        sys.meta_path.insert(0, Importer(files))
        if is_isolated:
            load("isolation")["refuse_foreign_code"]()
        else:
            load("names")["give_up_names"](["/box", "/box/src"])
            sys.path[:0] = ["/box", "/box/src"]
        # The fixed tests find what lies beside them, and not what the project has under the same name.
        sys.path[:0] = [folder for folder in folders if folder.startswith("/graphrun/")]
        sys.path.extend(folder for folder in folders if folder not in sys.path)

    by_path = {}

    class Module(pytest.Module):
        """A test file that was compiled before."""

        def _getobj(self):
            file = by_path[str(self.path)]
            try:
                return importlib.import_module(file.name)
            except pytest.skip.Exception as error:
                if error.allow_module_level:
                    raise
                raise self.CollectError("pytest.skip() outside of a test needs allow_module_level=True") from error
            except SyntaxError as error:
                raise self.CollectError(pytest.ExceptionInfo.from_current().getrepr(style="short")) from error
            except ImportError as error:
                shown = pytest.ExceptionInfo.from_current().getrepr(style="short")
                message = f"ImportError while importing test module '{self.path}'.\nTraceback:\n{shown}"
                raise self.CollectError(message) from error

    def identity_of(item):
        classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
        name = getattr(item, "originalname", None) or item.name
        return "::".join([str(item.path), *classes, name])

    class Plugin:
        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_load_initial_conftests(self):
            let_project_in()
            by_path.update((file.path, file) for file in files)
            yield

        @pytest.hookimpl(tryfirst=True)
        def pytest_pycollect_makemodule(self, module_path, parent):
            if str(module_path) in by_path:
                return Module.from_parent(parent, path=module_path)
            return None

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_make_collect_report(self, collector):
            outcome = yield
            if outcome.excinfo is not None or outcome.get_result().outcome == "failed":
                emit("uncollected", str(collector.path), "failed")
            elif outcome.get_result().outcome != "passed":
                emit("uncollected", str(collector.path), "skipped")

        @pytest.hookimpl(tryfirst=True)
        def pytest_itemcollected(self, item):
            emit("collected", item.nodeid, identity_of(item))

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item):
            running[0] = item.nodeid
            yield
            running[0] = None

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_call(self, item):
            outcome = yield
            if outcome.excinfo is None and running[0] == item.nodeid:
                emit("returned", item.nodeid, "")

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report):
            emit("phase", report.nodeid, str(report.when), kind_of(report))

    def kind_of(report):
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.outcome in ("skipped", "passed") else "failed"
        return report.outcome if report.outcome in ("passed", "skipped") else "failed"

    def finish(code):
        for picture in (pictures[0], pictures[2]) if pictures else ():
            changed = picture.find_difference()
            if changed is not None:
                emit("tampered", changed + " was replaced")
        for file in files:
            if read_regular(file.path) != file.source:
                emit("tampered", file.path + " changed while the tests ran")
        emit("end", str(code))

    return Plugin(), finish
