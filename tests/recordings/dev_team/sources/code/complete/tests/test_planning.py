"""Due days, tags and dependencies: US-004, US-005, US-006."""

from datetime import date

import pytest

from taskboard import BlockedTask, InvalidTask, open_board


def test_a_task_due_yesterday_is_overdue(board):
    """TC-010"""
    task = board.add("Pay rent", due=date(2026, 3, 1))
    assert [late.id for late in board.overdue()] == [task.id]


def test_a_task_due_today_is_not_overdue_yet(board):
    """TC-011"""
    board.add("Pay rent", due=date(2026, 3, 2))
    assert board.overdue() == []


def test_a_done_task_is_never_overdue(board):
    """TC-012"""
    task = board.add("Pay rent", due=date(2026, 3, 1))
    board.complete(task.id)
    assert board.overdue() == []


def test_a_search_ignores_case(board):
    """TC-013"""
    board.add("Call the BANK")
    board.add("Buy milk")
    assert [task.title for task in board.search("bank")] == ["Call the BANK"]


def test_tasks_are_found_by_their_tag(board):
    """TC-014"""
    board.add("Buy milk", tags=("shop",))
    task = board.add("Buy nails")
    board.tag(task.id, "tools")
    assert [found.title for found in board.tagged("tools")] == ["Buy nails"]


def test_a_removed_tag_stays_removed(tmp_path):
    """TC-015"""
    board = open_board(tmp_path / "tasks.db")
    task = board.add("Buy milk", tags=("shop", "food"))
    board.untag(task.id, "shop")
    again = open_board(tmp_path / "tasks.db")
    assert again.get(task.id).tags == {"food"}


def test_a_task_waits_for_another(board):
    """TC-016"""
    paint, sand = board.add("Paint"), board.add("Sand")
    board.wait(paint.id, sand.id)
    with pytest.raises(BlockedTask) as refusal:
        board.complete(paint.id)
    assert refusal.value.waits_for == [sand.id]
    board.complete(sand.id)
    board.complete(paint.id)


def test_tasks_cannot_wait_in_a_circle(board):
    """TC-017"""
    first, second, third = (board.add(title).id for title in ("a", "b", "c"))
    board.wait(first, second)
    board.wait(second, third)
    with pytest.raises(InvalidTask):
        board.wait(third, first)
    with pytest.raises(InvalidTask):
        board.wait(first, first)


def test_a_dependency_is_kept(tmp_path):
    """TC-018"""
    board = open_board(tmp_path / "tasks.db")
    paint, sand = board.add("Paint"), board.add("Sand")
    board.wait(paint.id, sand.id)
    with pytest.raises(BlockedTask):
        open_board(tmp_path / "tasks.db").complete(paint.id)
