"""Tests of the arguments of windows and triggers, and of how both describe themselves."""

from collections.abc import Callable

import pytest

from tidemark.base.errors import DefinitionError
from tidemark.define.triggers.firings import Count, EachArrival, Every, Never
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.windows import Calendar, Cumulating, Global, Session, Sliding, Tumbling, Window

LEAST = "1 microsecond"
LENGTHS: dict[str, Callable[[str], object]] = {
    "size of a tumbling window": Tumbling,
    "size of a sliding window": lambda length: Sliding(length, LEAST),
    "slide of a sliding window": lambda length: Sliding(LEAST, length),
    "size of a cumulating window": lambda length: Cumulating(length, LEAST),
    "step of a cumulating window": lambda length: Cumulating(LEAST, length),
    "gap of a session window": Session,
    "interval of a trigger": Every,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_is_greater_than_zero(name: str) -> None:
    assert LENGTHS[name](LEAST)
    for length in ("0 seconds", "-1 second"):
        with pytest.raises(DefinitionError, match=rf"^The {name} must be greater.*'{length}'\)"):
            LENGTHS[name](length)


def test_a_count_is_one_or_more() -> None:
    assert Count(1).n == 1
    with pytest.raises(DefinitionError, match=r"must be 1 or more \(got 0\)"):
        Count(0)


def test_the_steps_of_a_cumulating_window_divide_its_size() -> None:
    assert Cumulating("6 seconds", "6 seconds").slicing is None
    assert Cumulating("6 seconds", "3 seconds").slicing is not None
    with pytest.raises(DefinitionError, match=r"must be a multiple of its step \(got size 5"):
        Cumulating("5 microseconds", "2 microseconds")


@pytest.mark.parametrize("kind", [Sliding, Cumulating])
def test_an_event_is_in_a_bounded_number_of_windows(
    kind: Callable[[str, str], Window],
) -> None:
    """An array with all windows of an event would be larger than the engine's memory."""
    assert kind("1 day", "1 second")
    with pytest.raises(DefinitionError, match=r"each event would be in 86,400,000 windows; at mo"):
        kind("1 day", "1 millisecond")


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (Tumbling("1 hour"), "tumbling 1 hour"),
        (Tumbling("1 day", offset="6 hours"), "tumbling 1 day, offset 6 hours"),
        (Sliding("1 hour", "1 hour"), "sliding 1 hour every 1 hour"),
        (
            Sliding("1 hour", "90 minutes", "-1 minute"),
            "sliding 1 hour every 90 minutes, offset -1 minutes, with uncovered gaps of 30 minutes",
        ),
        (
            Sliding(LEAST, "2 microseconds"),
            "sliding 1 microsecond every 2 microseconds, with uncovered gaps of 1 microsecond",
        ),
        (Cumulating("1 day", "1 hour"), "cumulating 1 day by 1 hour"),
        (Cumulating("1 day", "1 hour", "1 hour"), "cumulating 1 day by 1 hour, offset 1 hour"),
        (Calendar("week"), "calendar week in UTC"),
        (Session("30 minutes"), "session, gap 30 minutes"),
        (Global(), "global"),
    ],
    ids=str,
)
def test_a_window_is_described(window: Window, text: str) -> None:
    assert str(window) == text


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (Trigger(), "on time, late each arrival"),
        (Trigger(late=Never()), "on time, late never"),
        (Trigger(early=EachArrival()), "early each arrival, on time, late each arrival"),
        (
            Trigger(Every("90 seconds"), Count(2)),
            "early every 90 seconds, on time, late every 2 events",
        ),
    ],
    ids=str,
)
def test_a_trigger_is_described(trigger: Trigger, text: str) -> None:
    assert str(trigger) == text


@pytest.mark.parametrize(
    ("outer", "inner", "contained"),
    [
        (Calendar("month"), Calendar("day"), True),
        (Calendar("year"), Calendar("month"), True),
        (Calendar("month"), Calendar("week"), False),
        (Calendar("day"), Calendar("day"), False),
        (Calendar("month", "Europe/Berlin"), Calendar("day"), False),
        (Calendar("day", "Europe/Berlin"), Tumbling("1 hour"), True),
        (Calendar("day", "Europe/Berlin"), Tumbling("1 hour", "30 minutes"), False),
        (Calendar("day", "Europe/Berlin"), Tumbling("2 hours"), False),
        (Calendar("day", "Asia/Kolkata"), Tumbling("1 hour"), False),
        (Calendar("day", "Asia/Kolkata"), Tumbling("30 minutes"), True),
        (Calendar("day", "Asia/Kolkata"), Tumbling("1 hour", "30 minutes"), True),
        # 12 or 13 hours and 45 minutes ahead of UTC.
        (Calendar("day", "Pacific/Chatham"), Tumbling("1 hour", "15 minutes"), True),
        (Calendar("day", "Pacific/Chatham"), Tumbling("1 hour", "45 minutes"), False),
        (Calendar("day"), Tumbling("5 hours"), False),
        (Calendar("day"), Session("1 hour"), False),
        (Tumbling("1 day"), Calendar("day"), False),
        (Session("1 hour"), Tumbling("1 hour"), False),
    ],
    ids=str,
)
def test_a_calendar_window_contains_others_if_none_crosses_its_bounds(
    outer: Window, inner: Window, contained: bool
) -> None:
    assert outer.contains_windows(inner) is contained
