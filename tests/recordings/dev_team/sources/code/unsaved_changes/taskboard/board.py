"""The rules of a task list."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

from taskboard.errors import BlockedTask, InvalidTask
from taskboard.store import MemoryStore, SqliteStore, Store
from taskboard.task import Priority, Status, Task, checked_title


class TaskBoard:
    def __init__(self, store: Store, today: Callable[[], date] = date.today) -> None:
        self._store = store
        self._today = today

    def add(
        self,
        title: str,
        priority: Priority = Priority.NORMAL,
        due: date | None = None,
        tags: tuple[str, ...] = (),
    ) -> Task:
        task = Task(self._store.next_id(), checked_title(title), priority, due=due, tags=set(tags))
        self._store.save(task)
        return task

    def get(self, task_id: int) -> Task:
        return self._store.get(task_id)

    def tasks(self, status: Status | None = None) -> list[Task]:
        """The tasks in the order in which they are to be done."""
        tasks = (task for task in self._store.all() if status in (None, task.status))
        return sorted(tasks, key=Task.sort_key)

    def complete(self, task_id: int) -> Task:
        task = self.get(task_id)
        if task.status is Status.DONE:
            raise InvalidTask(f"task {task_id} is done already")
        open_ones = [other for other in sorted(task.waits_for) if self.get(other).status is Status.OPEN]
        if open_ones:
            raise BlockedTask(task_id, open_ones)
        task.status = Status.DONE
        task.done_on = self._today()
        return task

    def reopen(self, task_id: int) -> Task:
        task = self.get(task_id)
        task.status = Status.OPEN
        task.done_on = None
        return task

    def overdue(self) -> list[Task]:
        return [task for task in self.tasks() if task.is_overdue(self._today())]

    def tag(self, task_id: int, tag: str) -> Task:
        task = self.get(task_id)
        task.tags.add(tag)
        return task

    def untag(self, task_id: int, tag: str) -> Task:
        task = self.get(task_id)
        task.tags.discard(tag)
        return task

    def tagged(self, tag: str) -> list[Task]:
        return [task for task in self.tasks() if tag in task.tags]

    def search(self, text: str) -> list[Task]:
        """The tasks whose title has the text, in any case."""
        return [task for task in self.tasks() if text.casefold() in task.title.casefold()]

    def wait(self, task_id: int, other_id: int) -> Task:
        """Makes one task wait for another."""
        task = self.get(task_id)
        if task_id in self._all_waited_for(other_id):
            raise InvalidTask(f"task {other_id} waits for task {task_id} already")
        task.waits_for.add(other_id)
        return task

    def _all_waited_for(self, task_id: int) -> set[int]:
        """The task and all that it waits for, however far."""
        found: set[int] = set()
        rest = [task_id]
        while rest:
            current = rest.pop()
            if current not in found:
                found.add(current)
                rest.extend(self.get(current).waits_for)
        return found


def open_board(path: Path | None = None, today: Callable[[], date] = date.today) -> TaskBoard:
    """A list kept in a file, or in memory when there is no path."""
    return TaskBoard(MemoryStore() if path is None else SqliteStore(path), today)
