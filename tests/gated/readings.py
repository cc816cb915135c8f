"""A few readings on each of three days: a wrong value on the second, a null name on the third."""

from helpers.data.support import MINUTE, T0, Event

DAY = 24 * 60 * MINUTE


def reading(day: int, minute: int, sensor: str | None, value: float) -> Event:
    return Event(T0 + day * DAY + minute * MINUTE, sensor, value)


ARRIVALS = [
    [reading(0, 0, "a", 1), reading(0, 1, "b", 2)],
    [reading(1, 0, "a", 9), reading(1, 0, "b", 1), reading(1, 1, "a", 3)],
    [reading(2, 0, "a", 1), reading(2, 0, None, 1)],
]
