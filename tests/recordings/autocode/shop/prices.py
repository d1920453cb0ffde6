"""Prices of a small shop, in cents."""


def total(prices: list[int]) -> int:
    """Returns the sum of the prices."""
    return sum(prices)
