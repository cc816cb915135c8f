"""A function that runs in the engine's Python workers."""


def add_tax(amount: float | None) -> float | None:
    return None if amount is None else amount * 1.25
