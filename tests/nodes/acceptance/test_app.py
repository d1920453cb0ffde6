"""The program prints its name."""

import subprocess
import sys


def test_the_program_prints_its_name():
    printed = subprocess.run([sys.executable, "app.py"], capture_output=True, text=True, check=True)
    assert printed.stdout == "app\n"
