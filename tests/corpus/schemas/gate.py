"""Accepts a folder with at least one file."""
import pathlib
import sys

files = [it for it in pathlib.Path(".").rglob("*.py") if it.name != "gate.py"]
print(f"{len(files)} files")
sys.exit(0 if files else 1)
