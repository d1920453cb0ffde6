"""The acceptance test of the examples: the program prints a report."""

import subprocess
import sys


def test_the_program_prints_a_report():
    printed = subprocess.run([sys.executable, "-m", "report"], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("# ")
