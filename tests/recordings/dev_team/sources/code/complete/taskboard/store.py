"""Where tasks are kept. A store only keeps: the rules are in the board."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Protocol

from taskboard.errors import UnknownTask
from taskboard.task import Priority, Status, Task


class Store(Protocol):
    def next_id(self) -> int: ...

    def save(self, task: Task) -> None: ...

    def get(self, task_id: int) -> Task: ...

    def all(self) -> list[Task]: ...


class MemoryStore:
    """Keeps tasks as long as the program runs."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}

    def next_id(self) -> int:
        return max(self._tasks, default=0) + 1

    def save(self, task: Task) -> None:
        self._tasks[task.id] = task

    def get(self, task_id: int) -> Task:
        try:
            return self._tasks[task_id]
        except KeyError:
            raise UnknownTask(task_id) from None

    def all(self) -> list[Task]:
        return list(self._tasks.values())


class SqliteStore:
    """Keeps tasks in a file. Every save is committed before it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._connection() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")

    def next_id(self) -> int:
        with self._connection() as connection:
            (highest,) = connection.execute("SELECT COALESCE(MAX(id), 0) FROM task").fetchone()
        return highest + 1

    def save(self, task: Task) -> None:
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO task VALUES (?, ?)", (task.id, _to_json(task)))

    def get(self, task_id: int) -> Task:
        with self._connection() as connection:
            row = connection.execute("SELECT id, body FROM task WHERE id = ?", (task_id,)).fetchone()
        if row is None:
            raise UnknownTask(task_id)
        return _from_row(*row)

    def all(self) -> list[Task]:
        with self._connection() as connection:
            return [_from_row(*row) for row in connection.execute("SELECT id, body FROM task ORDER BY id")]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that commits, or rolls back after an error, and is closed either way."""
        connection = sqlite3.connect(self._path)
        try:
            with connection:
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
