"""A list in memory on a fixed day."""

from datetime import date

import pytest

from taskboard import TaskBoard, open_board

TODAY = date(2026, 3, 2)


@pytest.fixture
def board() -> TaskBoard:
    return open_board(today=lambda: TODAY)
