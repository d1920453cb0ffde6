"""The registry of all tasks. The module keeps it, so that no object has to be handed around."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from taskboard.errors import UnknownTask
from taskboard.task import Priority, Status, Task

_REGISTRY: dict[int, Task] = {}


def next_id(path: Path | None) -> int:
    return max((task.id for task in all_tasks(path)), default=0) + 1


def save(path: Path | None, task: Task) -> None:
    if path is None:
        _REGISTRY[task.id] = task
        return
    with _connection(path) as connection:
        connection.execute("INSERT OR REPLACE INTO task VALUES (?, ?)", (task.id, _to_json(task)))


def get(path: Path | None, task_id: int) -> Task:
    for task in all_tasks(path):
        if task.id == task_id:
            return task
    raise UnknownTask(task_id)


def all_tasks(path: Path | None) -> list[Task]:
    if path is None:
        return list(_REGISTRY.values())
    with _connection(path) as connection:
        return [_from_row(*row) for row in connection.execute("SELECT id, body FROM task ORDER BY id")]


def reset() -> None:
    """Forgets the tasks kept in memory."""
    _REGISTRY.clear()


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that commits, or rolls back after an error, and is closed either way."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
            yield connection
    finally:
        connection.close()


def _to_json(task: Task) -> str:
    return json.dumps(
        {
            "title": task.title,
            "priority": task.priority.value,
            "status": task.status.value,
            "due": task.due.isoformat() if task.due else None,
            "done_on": task.done_on.isoformat() if task.done_on else None,
            "tags": sorted(task.tags),
            "waits_for": sorted(task.waits_for),
        }
    )


def _from_row(task_id: int, body: str) -> Task:
    fields = json.loads(body)
    return Task(
        id=task_id,
        title=fields["title"],
        priority=Priority(fields["priority"]),
        status=Status(fields["status"]),
        due=_to_date(fields["due"]),
        done_on=_to_date(fields["done_on"]),
        tags=frozenset(fields["tags"]),
        waits_for=frozenset(fields["waits_for"]),
    )


def _to_date(text: str | None) -> date | None:
    return date.fromisoformat(text) if text else None
