from prices import total


def test_nothing_costs_nothing():
    assert total([]) == 0


def test_prices_are_added():
    assert total([199, 301]) == 500
