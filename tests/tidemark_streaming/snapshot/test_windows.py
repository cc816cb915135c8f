"""Open windows: those whose end the watermark has not passed."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from helpers.data.tables import arrive, ran
from tidemark.base.instants import INFINITY
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import ADMITTED
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.snapshot.tables import Tables
from tidemark_streaming.snapshot.windows import count_open
from watched.transforms import by_hour, by_minute

INSTANT = pa.timestamp("us", "UTC")


def write(settings: Settings, table: str, ends: list[int], **columns: object) -> None:
    instants = pa.array(ends, pa.int64()).cast(INSTANT)
    rows = {"window_start": instants, "window_end": instants, "sensor": ["a"] * len(ends)}
    write_deltalake(
        f"{settings.warehouse}/{settings.database}/{table}", pa.table({**rows, **columns})
    )


@pytest.mark.parametrize(
    ("watermark", "left"), [(None, 4), (9, 4), (10, 3), (25, 2), (30, 1), (40, 0), (INFINITY, 0)]
)
@pytest.mark.parametrize("asset", [by_minute, by_hour])
def test_a_window_is_open_until_the_watermark_passes_its_end(
    tmp_path: Path, asset: Definition, watermark: int | None, left: int
) -> None:
    """Allowed lateness keeps a window from being final, but not open."""
    settings = Settings(home=tmp_path)
    # The state table has a row per window and run with events.
    write(settings, by_minute.state_table, [10, 20, 20, 30, 40], **{ADMITTED: [True] * 5})
    write(settings, by_hour.published_table, [10, 20, 30, 40])
    found = count_open(Tables.of_database(settings), asset, watermark)
    assert found.total() == left
    assert all(watermark is None or end > watermark for end in found)


def test_events_that_are_not_counted_open_no_window(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    write(settings, by_minute.state_table, [10, 20], **{ADMITTED: [True, False]})
    assert count_open(Tables.of_database(settings), by_minute, None) == {10: 1}


def test_a_reused_snapshot_equals_a_new_one(tmp_path: Path) -> None:
    settings, now = Settings(home=tmp_path), replace(by_minute, keys=("origin",))
    kept = Snapshot(settings, [now], pause_factor=0)

    def same() -> tuple[object, object]:
        found = [
            (s.read_source(now.source), s.read_asset(now))
            for s in (kept, Snapshot(settings, [now]))
        ]
        assert found[0] == found[1]
        return found[0]

    before = same()
    arrive(settings, now.source.name, 0, 4)
    assert same() != before
    before = same()
    ran(settings, now.name, 0, 3, 0, quarantined=0, duplicate=0)
    arrive(settings, now.source.name, 5, 5)
    assert same() != before
