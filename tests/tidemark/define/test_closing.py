"""Tests of the end of the last window that starts in a range, compared with assigned windows."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helpers.model.oracle import windows_of
from helpers.suite.nightly import mostly_nightly
from tidemark.base.instants import BEGINNING, INFINITY, parse_duration, parse_instant
from tidemark.define.windows import Calendar, Cumulating, Global, Sliding, Tumbling, Window

HALF_HOUR, MINUTE = parse_duration("30 minutes"), parse_duration("1 minute")
DST_CHANGES = ("2013-03-31", "2013-10-27", "2018-11-04", "2018-02-18", "2010-11-07")
"""Days on which midnight may be skipped or occur twice."""


@pytest.mark.parametrize(
    "window",
    [
        Tumbling("6 hours", offset="1 hour"),
        Sliding("3 hours", "1 hour"),
        Cumulating("6 hours", "90 minutes"),
        Calendar("day", "Europe/Berlin"),
        Calendar("day", "America/Sao_Paulo"),
        Calendar("day", "America/St_Johns"),
        Calendar("week", "America/New_York"),
        Calendar("month", "Europe/Berlin"),
        Calendar("year", "Asia/Kolkata"),
    ],
    ids=str,
)
@pytest.mark.parametrize("day", mostly_nightly(DST_CHANGES))
def test_last_window_end_matches_the_assigned_windows(
    spark: SparkSession, window: Window, day: str
) -> None:
    ends = [parse_instant(day) + n * HALF_HOUR for n in (0, 1, 5, 6, 47, 49)]
    moments = spark.range(parse_instant(day) - parse_duration("8 days"), max(ends) + 1, HALF_HOUR)
    rows = window.assign_windows(moments.select(F.timestamp_micros("id").alias("at")), "at")
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    outside = F.count_if(F.expr("at < window_start OR at >= window_end"))
    last = [F.max(F.when(start < e, end)) for e in ends]
    *found, strangers = rows.agg(*last, outside).collect()[0]
    assert [window.last_window_end(e) for e in ends] == found
    assert strangers == 0


LENGTHS = st.integers(1, 12)
OFFSETS = st.integers(-20, 20)


def text(seconds: int) -> str:
    return f"{seconds} seconds"


@st.composite
def aligned(draw: st.DrawFn) -> tuple[Window, dict[str, Any]]:
    """Draw a window kind, and the same as the oracle has it."""
    size, other, offset = draw(LENGTHS), draw(LENGTHS), text(draw(OFFSETS))
    kind = draw(st.sampled_from(["tumbling", "sliding", "cumulating"]))
    match kind:
        case "tumbling":
            spec = {"size": text(size)}
            window = Tumbling(spec["size"], offset)
        case "sliding":
            spec = {"size": text(size), "slide": text(other)}
            window = Sliding(spec["size"], spec["slide"], offset)
        case _:
            spec = {"size": text(size * other), "step": text(size)}
            window = Cumulating(spec["size"], spec["step"], offset)
    return window, {kind: spec | {"offset": offset}}


@given(aligned(), st.integers(-400, 400))
def test_the_last_of_aligned_windows_is_the_oracles(
    drawn: tuple[Window, dict[str, Any]], end: int
) -> None:
    window, spec = drawn
    # Windows with gaps may lie before an instant that is in none of them.
    moments = [(end - before) * 1_000_000 - 1 for before in range(30)]
    ends = [last for at in moments for _, last in windows_of(spec, at)]
    assert window.last_window_end(end * 1_000_000) == max(ends)


def test_the_last_window_may_be_a_microsecond_long() -> None:
    assert [Tumbling("1 microsecond").last_window_end(end) for end in (-1, 0, 5)] == [-1, 0, 5]
    assert Tumbling("1 hour").last_window_end(1) == parse_duration("1 hour")


ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "Asia/Kolkata")


@settings(max_examples=300)
@example("day", "America/St_Johns", parse_instant("2010-11-07 02:31") + 1)
@given(
    st.sampled_from(["day", "week", "month", "year"]),
    st.sampled_from(ZONES),
    st.one_of(
        st.integers(parse_duration("-900 weeks"), parse_instant("2030-01-01")),
        st.builds(
            lambda day, half_hours, micros: parse_instant(day) + half_hours * HALF_HOUR + micros,
            st.sampled_from(DST_CHANGES),
            st.integers(-12, 60),
            st.integers(-1, 2),
        ),
    ),
)
def test_the_last_calendar_window_is_the_oracles(unit: str, zone: str, end: int) -> None:
    spec = {"calendar": {"unit": unit, "timezone": zone}}
    moments = [end - 1 - before * MINUTE for before in range(121)]
    windows = [window for at in moments for window in windows_of(spec, at)]
    assert Calendar(unit, zone).last_window_end(end) == max(last for _, last in windows)
    # Also in St. John's, where the clock went back to the day before, a minute after midnight.
    for at, window in zip(moments, windows, strict=True):
        assert Calendar(unit, zone).window_around(at) == window
        assert window[0] <= at < window[1]


@given(LENGTHS, OFFSETS, LENGTHS, OFFSETS)
def test_a_tumbling_window_contains_others_if_none_crosses_its_bounds(
    size: int, offset: int, inner_size: int, inner_offset: int
) -> None:
    outer = Tumbling(text(size), text(offset))
    inner = Tumbling(text(inner_size), text(inner_offset))
    bounds = {at for at in range(150) if (at - offset) % size == 0}
    within = (n for n in range(150 - inner_size) if (n - inner_offset) % inner_size == 0)
    crossed = any(bounds & set(range(start + 1, start + inner_size)) for start in within)
    assert outer.contains_windows(inner) is not crossed


def test_a_window_that_never_ends_closes_at_infinity() -> None:
    assert Global().last_window_end(parse_instant("2013-01-01")) == INFINITY
    assert Calendar("year").last_window_end(INFINITY) == INFINITY
    for unit in ("day", "week", "month", "year"):
        assert (
            Calendar(unit, "America/New_York").last_window_end(parse_instant("9999-06-01"))
            == INFINITY
        )
        Calendar(unit, "America/New_York").last_window_end(BEGINNING)
