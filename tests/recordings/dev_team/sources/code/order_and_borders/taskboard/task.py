"""A task, as a value: a change makes a new one."""

from dataclasses import dataclass
from datetime import date
from enum import Enum

from taskboard.errors import InvalidTask

TITLE_LENGTH_MAX = 120


class Priority(Enum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Status(Enum):
    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True)
class Task:
    id: int
    title: str
    priority: Priority = Priority.NORMAL
    status: Status = Status.OPEN
    due: date | None = None
    done_on: date | None = None
    tags: frozenset[str] = frozenset()
    waits_for: frozenset[int] = frozenset()

    def is_overdue(self, today: date) -> bool:
        """Whether the due day has come and the task is still open."""
        return self.status is Status.OPEN and self.due is not None and self.due <= today

    def sort_key(self) -> tuple[str, date, int]:
        return (self.priority.value, self.due or date.max, self.id)


def checked_title(title: str) -> str:
    """The title without blanks around it."""
    title = title.strip()
    if not title:
        raise InvalidTask("a title is required")
    if len(title) > TITLE_LENGTH_MAX:
        raise InvalidTask(f"a title has at most {TITLE_LENGTH_MAX} characters, this one has {len(title)}")
    return title
