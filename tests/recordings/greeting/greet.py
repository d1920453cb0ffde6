"""Greetings of a host."""


def greet(name: str) -> str:
    """Returns the words for a guest who comes."""
    return f"Hello, {name}"
