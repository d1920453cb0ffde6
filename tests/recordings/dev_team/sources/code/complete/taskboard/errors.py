"""What a task list refuses to do."""


class BoardError(Exception):
    """The base of all errors that are the user's to mend."""


class InvalidTask(BoardError):
    """The task, or the change to it, makes no sense."""


class UnknownTask(BoardError):
    """No task has this id."""

    def __init__(self, task_id: int) -> None:
        super().__init__(f"there is no task {task_id}")
        self.task_id = task_id


class BlockedTask(BoardError):
    """The task waits for others."""

    def __init__(self, task_id: int, waits_for: list[int]) -> None:
        others = ", ".join(str(other) for other in waits_for)
        super().__init__(f"task {task_id} waits for {others}")
        self.waits_for = waits_for
