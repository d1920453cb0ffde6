"""Three tests, of which the second passes whatever the program prints."""

import subprocess
import sys


def test_the_first_line():
    printed = subprocess.run([sys.executable, "app.py"], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("# "), "the heading is missing"


def test_no_program():
    assert "a b".split() == ["a", "b"]


def test_that_raises():
    raise ValueError("boom")
