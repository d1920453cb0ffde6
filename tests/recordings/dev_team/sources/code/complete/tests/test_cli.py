"""The command line: US-008."""

import pytest

from taskboard.cli import main


@pytest.fixture
def run(tmp_path):
    def run(*arguments: str) -> int:
        return main(["--file", str(tmp_path / "tasks.db"), *arguments])

    return run


def test_an_added_task_is_listed(run, capsys):
    """TC-022"""
    assert run("add", "Buy milk", "--due", "2026-03-04") == 0
    assert run("list") == 0
    assert capsys.readouterr().out == "added 1\n[ ] 1 Buy milk (due 2026-03-04)\n"


def test_a_done_task_is_marked(run, capsys):
    """TC-023"""
    run("add", "Buy milk")
    assert run("done", "1") == 0
    run("list")
    assert capsys.readouterr().out.splitlines()[-1] == "[x] 1 Buy milk"


def test_an_unknown_task_is_refused_with_a_message(run, capsys):
    """TC-024"""
    assert run("done", "7") == 1
    assert capsys.readouterr().err == "taskboard: there is no task 7\n"
