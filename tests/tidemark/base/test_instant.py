"""Tests of parsing durations and instants, which are whole microseconds."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import (
    BEGINNING,
    INFINITY,
    as_datetime,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 second", 1_000_000),
        ("1.5 hours", 5_400_000_000),
        ("-30 Minutes", -1_800_000_000),
        ("250 milliseconds", 250_000),
        ("2 weeks", 14 * 86_400_000_000),
        ("0 days", 0),
        ("1h", 3_600_000_000),
        ("-1.5 h", -5_400_000_000),
        ("30min", 1_800_000_000),
        ("5m", 300_000_000),
        ("10s", 10_000_000),
        ("20ms", 20_000),
        ("7us", 7),
        ("2d", 2 * 86_400_000_000),
        ("1w", 7 * 86_400_000_000),
        ("interval 1 hour", 3_600_000_000),
        ("INTERVAL '2' DAY", 2 * 86_400_000_000),
        ("interval '-5 minutes'", -300_000_000),
        (timedelta(minutes=1, microseconds=1), 60_000_001),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


# `1M` is a month elsewhere.
@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "3",
        "hours",
        "1 month",
        "1 hour 30 minutes",
        "1M",
        "1H",
        "interval",
        "interval1h",
    ],
)
def test_an_invalid_duration_is_refused_with_the_units(text: str) -> None:
    with pytest.raises(DefinitionError, match="is not a duration: write a number and one of micro"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2013-01-01T01:00:00+01:00", 1_356_998_400_000_000),
        (datetime(1970, 1, 2, tzinfo=UTC), 86_400_000_000),
    ],
)
def test_an_instant_without_an_offset_is_utc(text: str | datetime, micros: int) -> None:
    assert parse_instant(text) == micros
    assert isinstance(parse_instant(text), int)


def test_an_invalid_instant_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'yesterday' is not a date or time: write ISO 8601"):
        parse_instant("yesterday")


def test_instants_are_written_as_text() -> None:
    assert format_instant(None) is None
    assert format_instant(BEGINNING) is None
    assert format_instant(INFINITY) == "+infinity"
    assert format_instant(1_500_000) == "1970-01-01T00:00:01.500000Z"
    assert format_instant(-1_000_000) == "1969-12-31T23:59:59Z"
    assert as_datetime(INFINITY) == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["3 hours", "1 day", "90 seconds", "1 microsecond", "0 seconds", "36 hours"]
)
def test_a_duration_is_described_as_it_was_written(text: str) -> None:
    assert format_duration(parse_duration(text)) == text
