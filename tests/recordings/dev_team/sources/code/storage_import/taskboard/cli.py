"""The command line: taskboard [--file FILE] add | list | done."""

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from taskboard.board import TaskBoard
from taskboard.errors import BoardError
from taskboard.storage import SqliteStore
from taskboard.task import Priority, Status, Task


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; 0 when it was done, 1 when it was refused."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments, TaskBoard(SqliteStore(arguments.file)))
    except BoardError as error:
        print(f"taskboard: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace, board: TaskBoard) -> None:
    match arguments.command:
        case "add":
            task = board.add(arguments.title, Priority(arguments.priority), arguments.due, tuple(arguments.tag))
            print(f"added {task.id}")
        case "list":
            for task in board.tasks():
                print(_line(task))
        case "done":
            print(f"done {board.complete(arguments.id).id}")


def _line(task: Task) -> str:
    mark = "x" if task.status is Status.DONE else " "
    due = f" (due {task.due})" if task.due else ""
    return f"[{mark}] {task.id} {task.title}{due}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="taskboard")
    parser.add_argument("--file", type=Path, default=Path("tasks.db"))
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("title")
    add.add_argument("--priority", choices=[priority.value for priority in Priority], default="normal")
    add.add_argument("--due", type=date.fromisoformat)
    add.add_argument("--tag", action="append", default=[])
    commands.add_parser("list")
    commands.add_parser("done").add_argument("id", type=int)
    return parser


if __name__ == "__main__":
    sys.exit(main())
