"""A list in memory on a fixed day, and an empty registry for each test."""

from datetime import date

import pytest

from taskboard import TaskBoard, open_board, store

TODAY = date(2026, 3, 2)


@pytest.fixture(autouse=True)
def empty_registry() -> None:
    store.reset()


@pytest.fixture
def board() -> TaskBoard:
    return open_board(today=lambda: TODAY)
