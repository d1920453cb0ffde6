"""Keeping tasks: US-007."""

from taskboard import Status, open_board


def test_added_tasks_are_there_again(tmp_path):
    """TC-019"""
    open_board(tmp_path / "tasks.db").add("Buy milk")
    assert [task.title for task in open_board(tmp_path / "tasks.db").tasks()] == ["Buy milk"]


def test_a_change_is_kept(tmp_path):
    """TC-020"""
    board = open_board(tmp_path / "tasks.db")
    task = board.add("Buy milk")
    board.complete(task.id)
    assert open_board(tmp_path / "tasks.db").get(task.id).status is Status.DONE


def test_two_lists_do_not_see_each_others_tasks(tmp_path):
    """TC-021"""
    home, work = open_board(tmp_path / "home.db"), open_board(tmp_path / "work.db")
    home.add("Buy milk")
    work.add("Write report")
    assert [task.title for task in home.tasks()] == ["Buy milk"]
    assert [task.title for task in work.tasks()] == ["Write report"]
