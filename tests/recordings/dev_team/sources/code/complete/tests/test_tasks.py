"""Adding, listing and completing tasks: US-001, US-002, US-003."""

from datetime import date

import pytest

from taskboard import InvalidTask, Priority, Status


def test_a_new_task_is_open_and_listed(board):
    """TC-001"""
    task = board.add("Buy milk")
    assert task.id == 1
    assert task.status is Status.OPEN
    assert board.tasks() == [task]


def test_blanks_around_a_title_are_dropped(board):
    """TC-002"""
    assert board.add("  Buy milk \n").title == "Buy milk"


def test_a_title_must_say_something_and_fit_a_line(board):
    """TC-003"""
    for title in ("", " \t", "x" * 121):
        with pytest.raises(InvalidTask):
            board.add(title)
    assert board.add("x" * 120).id == 1


def test_higher_priority_comes_first_then_the_earlier_due_day(board):
    """TC-004"""
    board.add("low", Priority.LOW, due=date(2026, 3, 3))
    board.add("normal, later", Priority.NORMAL, due=date(2026, 3, 9))
    board.add("normal, sooner", Priority.NORMAL, due=date(2026, 3, 4))
    board.add("high", Priority.HIGH, due=date(2026, 4, 1))
    assert [task.title for task in board.tasks()] == ["high", "normal, sooner", "normal, later", "low"]


def test_tasks_without_a_due_day_come_last_in_their_priority(board):
    """TC-005"""
    board.add("some day")
    board.add("tomorrow", due=date(2026, 3, 3))
    assert [task.title for task in board.tasks()] == ["tomorrow", "some day"]


def test_a_list_can_be_limited_to_one_status(board):
    """TC-006"""
    done, still_open = board.add("done"), board.add("open")
    board.complete(done.id)
    assert [task.id for task in board.tasks(Status.OPEN)] == [still_open.id]
    assert [task.id for task in board.tasks(Status.DONE)] == [done.id]


def test_a_completed_task_tells_the_day(board):
    """TC-007"""
    task = board.add("Buy milk")
    board.complete(task.id)
    assert board.get(task.id).status is Status.DONE
    assert board.get(task.id).done_on == date(2026, 3, 2)


def test_a_task_is_completed_only_once(board):
    """TC-008"""
    task = board.add("Buy milk")
    board.complete(task.id)
    with pytest.raises(InvalidTask):
        board.complete(task.id)


def test_a_reopened_task_is_open_and_forgets_its_day(board):
    """TC-009"""
    task = board.add("Buy milk")
    board.complete(task.id)
    board.reopen(task.id)
    assert board.get(task.id).status is Status.OPEN
    assert board.get(task.id).done_on is None
