"""A list of tasks with priorities, due dates, tags and dependencies."""

from taskboard.board import TaskBoard, open_board
from taskboard.errors import BlockedTask, BoardError, InvalidTask, UnknownTask
from taskboard.task import Priority, Status, Task

__all__ = [
    "BlockedTask",
    "BoardError",
    "InvalidTask",
    "Priority",
    "Status",
    "Task",
    "TaskBoard",
    "UnknownTask",
    "open_board",
]
