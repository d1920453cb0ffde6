from greet import farewell, greet


def test_a_guest_is_greeted():
    assert greet("Ada") == "Hello, Ada"


def test_a_guest_is_seen_off():
    assert farewell("Ada") == "Goodbye, Ada"


def test_blanks_around_a_name_do_not_count():
    assert farewell(" Ada ") == "Goodbye, Ada"


def test_a_guest_without_a_name_is_seen_off():
    assert farewell("") == "Goodbye"
