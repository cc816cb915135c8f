"""Heartbeats: the options of a source and of its watermark, and the watermark after a heartbeat."""

import pytest

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.define.source import Source
from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    Manual,
    MonotonicTimestamps,
    Perfect,
    PerPartition,
    Punctuated,
    Watermark,
    after_heartbeat,
)

MINUTE = 60_000_000
BOUNDED = BoundedOutOfOrderness("1 minute", idle="5 minutes")


def source(watermark: Watermark, heartbeat: str | None = None) -> Source:
    columns = {"at": "TIMESTAMP", "sensor": "STRING"}
    return Source(
        name="s", columns=columns, event_time="at", watermark=watermark, heartbeat=heartbeat
    )


def after(strategy: Watermark, silence: int, previous: int | None = 0) -> int | None:
    """Return the watermark after a heartbeat at minute 100, after some minutes of silence."""
    return after_heartbeat(strategy, previous, 100 * MINUTE, (100 - silence) * MINUTE)


def test_after_the_idle_time_a_heartbeat_moves_the_watermark_to_its_clock_less_the_bound() -> None:
    assert [after(BOUNDED, silence) for silence in (4, 5, 6)] == [0, 99 * MINUTE, 99 * MINUTE]
    monotonic = MonotonicTimestamps(idle="5 minutes")
    assert [after(monotonic, silence) for silence in (4, 5)] == [0, 100 * MINUTE]
    by_sensor = PerPartition("sensor", "1 minute", idle="5 minutes")
    assert [after(by_sensor, silence) for silence in (4, 5)] == [0, 99 * MINUTE]


def test_a_heartbeat_never_moves_the_watermark_back_or_to_the_end() -> None:
    assert after(BOUNDED, 9, previous=200 * MINUTE) == 200 * MINUTE
    assert after_heartbeat(BOUNDED, 0, INFINITY + 9 * MINUTE, 0) == INFINITY - 1


def test_a_source_without_an_event_stays_at_minus_infinity() -> None:
    assert after(BOUNDED, 99, previous=None) is None


@pytest.mark.parametrize(
    "strategy",
    [
        BoundedOutOfOrderness("1 minute"),
        MonotonicTimestamps(),
        Punctuated("at"),
        Perfect(),
        Manual(),
    ],
    ids=str,
)
def test_without_an_idle_time_a_heartbeat_moves_nothing(strategy: Watermark) -> None:
    assert after(strategy, 99) == 0
    assert not strategy.needs_heartbeats


def test_strategies_show_their_idle_time() -> None:
    assert str(BOUNDED) == (
        "newest event time - 1 minute; after 5 minutes of silence, at least processing time - 1 "
        "minute"
    )
    assert str(MonotonicTimestamps(idle="1 hour")).endswith(
        "; after 1 hour of silence, at least processing time"
    )


@pytest.mark.parametrize("idle", ["0 seconds", "-1 minute"])
def test_an_idle_time_must_be_greater_than_zero(idle: str) -> None:
    message = rf"The idle time of a source must be greater than zero \(got '{idle}'\)"
    with pytest.raises(DefinitionError, match=message):
        BoundedOutOfOrderness("1 minute", idle=idle)
    with pytest.raises(DefinitionError, match=message):
        MonotonicTimestamps(idle=idle)


def test_an_idle_time_without_heartbeats_is_refused() -> None:
    for strategy in (BOUNDED, MonotonicTimestamps(idle="5 minutes")):
        with pytest.raises(
            DefinitionError, match=r"Source 's': its watermark has idle, .* Set heartbeat"
        ):
            source(strategy)
        assert source(strategy, "1 minute").heartbeat == "1 minute"
    # Other arrivals may let a partition become idle.
    assert source(PerPartition("sensor", "1 minute")).heartbeat is None


def test_a_heartbeat_longer_than_the_idle_time_is_refused() -> None:
    by_sensor = PerPartition("sensor", "1 minute", idle="5 minutes")
    for strategy in (BOUNDED, MonotonicTimestamps(idle="5 minutes"), by_sensor):
        message = r"Source 's': heartbeat must not be longer than idle .* idle is 5 minutes.* Set"
        with pytest.raises(DefinitionError, match=message):
            source(strategy, "301 seconds")
        assert source(strategy, "5 minutes").heartbeat == "5 minutes"
    # Without idle, a heartbeat of any length advances processing time.
    assert source(Manual(), "1 day").heartbeat == "1 day"


@pytest.mark.parametrize("heartbeat", ["0 seconds", "-1 minute", "999 milliseconds"])
def test_a_heartbeat_takes_at_least_a_second(heartbeat: str) -> None:
    message = rf"Source 's': heartbeat must be at least 1 second \(got '{heartbeat}'\)"
    with pytest.raises(DefinitionError, match=message):
        source(MonotonicTimestamps(), heartbeat)
