"""Notices code that replaces parts of the runner or of what tests are made of."""

import importlib
import sys
import types

OWN = ("_pytest", "pytest", "pluggy", "iniconfig", "unittest", "builtins", "importlib._bootstrap")
# Tests replace these in the interpreter they share with the runner, and put them back.
REPLACED_BY_TESTS = {
    "open", "input", "print", "__import__", "exit", "quit", "help", "breakpoint", "_", "copyright", "credits", "license",
}  # fmt: skip
# Attributes that Python itself adds to classes and modules when they are first used.
ADDED_LATER = {
    "__abstractmethods__", "_abc_impl", "__annotations__", "__annotations_cache__", "__annotate__", "__annotate_func__",
    "__doc__", "__warningregistry__", "__type_params__", "__static_attributes__", "__slotnames__",
}  # fmt: skip
# Modules of the standard library with functions that assertions call.
CALLED_BY_ASSERTIONS = ("cmath", "collections", "difflib", "functools", "itertools", "math", "operator", "re", "statistics")
CALLABLE = (type, types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property)


def is_own(name):
    return any(name == own or name.startswith(own + ".") for own in OWN)


def space_of(thing):
    """The names of a module or class, as a view that shows later changes and that no attribute can hide."""
    if isinstance(thing, type):
        return type.__dict__["__dict__"].__get__(thing)
    return thing.__dict__


def lasting(space):
    """The names of a class that nothing but a replacement adds or removes."""
    return {key for key in space if key not in ADDED_LATER and not key.startswith("_pytest_")}


class Picture:
    """What a set of modules and classes consisted of at one moment."""

    def __init__(self):
        self.values, self.functions, self.classes, self.seen = [], [], [], set()

    def add_module(self, module, skipped=()):
        name = module.__name__
        for key, value in list(space_of(module).items()):
            if key not in skipped and isinstance(value, CALLABLE):
                self.add_value(space_of(module), key, value, f"{name}.{key}")

    def add_classes(self, module):
        for value in list(space_of(module).values()):
            if isinstance(value, type) and is_own(str(value.__module__)):
                self.add_class(value)

    def add_class(self, cls):
        if cls in self.seen:
            return
        self.seen.add(cls)
        space, name = space_of(cls), f"{cls.__module__}.{cls.__qualname__}"
        if cls.__flags__ & 1 << 9:  # A class of Python and not of C, so its attributes can change.
            self.classes.append((space, frozenset(lasting(space)), name))
        for key, value in list(space.items()):
            if isinstance(value, CALLABLE):
                self.add_value(space, key, value, f"{name}.{key}")

    def add_value(self, space, key, value, name):
        self.values.append((space, key, value, name))
        for function in functions_of(value):
            self.functions.append((function, function.__code__, function.__defaults__, name))

    def find_difference(self):
        """The name of something that is not what it was, or nothing."""
        for space, key, value, name in self.values:
            if space.get(key) is not value:
                return name
        for function, code, defaults, name in self.functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return name
        for space, keys, name in self.classes:
            if lasting(space) != keys:
                return name
        return None


def functions_of(value):
    """The functions of Python behind an attribute."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    parts = (value.fget, value.fset) if isinstance(value, property) else (value,)
    return [part for part in parts if isinstance(part, types.FunctionType)]


def picture_of_runner():
    """All of the runner: compared when the tests are over."""
    picture = Picture()
    for name, module in list(sys.modules.items()):
        if is_own(name) and isinstance(module, types.ModuleType):
            picture.add_module(module)
            picture.add_classes(module)
    return picture


def picture_of_library():
    """Functions that tests call in their assertions: compared when a test begins, and when the tests are over.

    A test may replace such a function while it runs, and put it back.
    """
    picture = Picture()
    for name in CALLED_BY_ASSERTIONS:
        picture.add_module(importlib.import_module(name))
    return picture


def picture_of_assertions():
    """What an assertion depends on: compared whenever a test begins or returns."""
    import builtins
    import unittest.case

    import _pytest.assertion.rewrite as rewriting
    import pytest

    picture = Picture()
    picture.add_module(builtins, REPLACED_BY_TESTS)
    picture.add_class(unittest.case.TestCase)
    picture.add_class(unittest.case._AssertRaisesContext)
    picture.add_module(rewriting)
    for name in ("raises", "fail", "approx", "warns"):
        picture.add_value(space_of(pytest), name, getattr(pytest, name), f"pytest.{name}")
    return picture
