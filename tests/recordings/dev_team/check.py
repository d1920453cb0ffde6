"""Runs every attempt of the recorded runs with pytest, and checks what build.py claims about it.

    python3 check.py           needs a Python with pytest; prints one line an attempt
    python3 check.py --write   also saves pytest's outputs under outputs/, for tests without pytest

A claim is wrong when a count differs, or when a line that an entry quotes is not in what the engine feeds back, which
is the last 3,000 characters of the output.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from build import ATTEMPTS, HERE, RUNS, Attempt

OUTPUT_CHARACTERS_MAX = 3000


def run_pytest(attempt: Attempt) -> dict:
    """What the test runner would report of an attempt."""
    with tempfile.TemporaryDirectory() as folder:
        for path, content in attempt.files().items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        report = Path(folder, "report.xml")
        options = ["-q", "--tb=short", "-rf", "-p", "no:cacheprovider", f"--junitxml={report}"]
        # As in the sandbox: eighty columns, and no summary of full length as on a build server.
        environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "COLUMNS": "80"}
        command = [sys.executable, "-m", "pytest", *options]
        finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if not report.is_file():
            sys.exit(f"pytest did not run: {finished.stdout}{finished.stderr}")
        suite = ElementTree.parse(report).getroot().find("testsuite")
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        passed = int(suite.get("tests")) - failed - int(suite.get("skipped"))
        output = as_in_the_sandbox(finished.stdout.replace(folder, "/box"))
    success = finished.returncode == 0
    return {
        "passed": success,
        "total_tests": passed + failed,
        "passed_count": passed,
        "failed_count": failed,
        "error_output": "" if success else output[-OUTPUT_CHARACTERS_MAX:],
        "duration_seconds": 0.1,
        "proof": "in_process",
    }


def as_in_the_sandbox(output: str) -> str:
    """The output without what differs from one machine and one run to the next."""
    output = re.sub(r"-+ generated xml file: .* -+\n", "", output)
    output = output.replace(sys.base_prefix, "/usr")
    output = re.sub(r"/\S*/pytest-of-\w+/pytest-\d+/", "/tmp/pytest-of-nobody/pytest-0/", output)
    output = re.sub(r"\b0x[0-9a-f]{6,}", "0x7f0000000000", output)
    return re.sub(r"\bin \d+\.\d+s\b", "in 0.10s", output)


def main(arguments: list[str]) -> int:
    wrong = []
    for run, attempts in ATTEMPTS.items():
        # The quotes of the n-th later entry of sse are about the n-th attempt.
        quotes = [entry.quotes for entry in RUNS[run]() if entry.node == "sse"][1:]
        for number, attempt in enumerate(attempts, 1):
            result = run_pytest(attempt)
            counts = (result["passed_count"], result["failed_count"])
            print(f"{run} {number}: {counts[0]} of {result['total_tests']} tests pass")
            if counts != (attempt.passed, attempt.failed):
                wrong.append(f"{run} {number}: {attempt.passed} passed and {attempt.failed} failed are claimed")
            quoted = quotes[number - 1] if number <= len(quotes) else ()
            missing = [quote for quote in quoted if quote not in result["error_output"]]
            wrong += [f"{run} {number}: pytest does not print {quote!r}" for quote in missing]
            if arguments == ["--write"]:
                folder = HERE / "outputs"
                folder.mkdir(exist_ok=True)
                text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
                Path(folder, f"{run}_{number}.json").write_text(text, encoding="utf-8")
    for claim in wrong:
        print(f"wrong: {claim}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
