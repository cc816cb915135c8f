"""Test partitions of event time: each instant is in exactly one, even when clocks go back."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import dagster as dg
import pytest

from tidemark.base.instants import parse_instant
from tidemark.define.windows import Tumbling
from tidemark_assets.base.spans import find_closed_partitions, spans

HOUR = 3600 * 10**6
ZONES = {
    "America/New_York": ("2024-03-09", "2024-11-02"),
    "Europe/Berlin": ("2024-03-30", "2024-10-26"),
    "Australia/Lord_Howe": ("2024-04-06", "2024-10-05"),
    "Asia/Kolkata": ("2024-03-09", "2024-11-02"),
    # The clocks change at midnight.
    "Asia/Beirut": ("2024-03-29", "2024-10-25"),
    "Africa/Cairo": ("2024-04-24", "2024-10-30"),
}
"""Days before a clock change, if the zone has one."""


@pytest.mark.parametrize("zone", ZONES)
def test_each_instant_is_in_one_partition(zone: str) -> None:
    """An hour that the clock shows twice is two partitions (Dagster 18022)."""
    start = "2024-01-01"
    for partitions in (
        dg.HourlyPartitionsDefinition(f"{start}-00:00", timezone=zone),
        dg.HourlyPartitionsDefinition(f"{start}-00:00", timezone=zone, minute_offset=15),
        dg.DailyPartitionsDefinition(start, timezone=zone),
        dg.DailyPartitionsDefinition(start, timezone=zone, hour_offset=2),
    ):
        for day in ZONES[zone]:
            first = parse_instant(datetime.fromisoformat(f"{day}T00:00:00+00:00"))
            last = first + 72 * HOUR
            found = spans(partitions, first, last)
            assert len({span.key for span in found}) == len(found)
            assert found[0].start <= first < found[0].end
            assert found[-1].start <= last < found[-1].end
            assert all(a.end == b.start for a, b in pairwise(found))
            if isinstance(partitions, dg.HourlyPartitionsDefinition):
                assert {span.end - span.start for span in found} == {HOUR}
            for span in found:
                assert spans(partitions, span.start, span.start) == [span]
            window = Tumbling("15 minutes")
            closed = find_closed_partitions(partitions, window, last, last, len(found))
            assert closed[-len(found) + 1 :] == found[:-1]


def test_the_newest_partition_follows_its_end_offset_and_time_zone() -> None:
    """Days follow the time zone of the partitions (Dagster 18492)."""
    now = datetime.now(UTC)
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        for offset in (0, 1):
            days = dg.DailyPartitionsDefinition("2026-01-01", timezone=zone, end_offset=offset)
            newest = spans(days, 0, parse_instant(now))[-1]
            assert newest.start <= parse_instant(now - timedelta(days=1 - offset)) < newest.end
