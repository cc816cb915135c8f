"""The totals over the timeline and the ledger, after reads that failed."""

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidemark.base.settings import Settings
from tidemark.store import ledger
from tidemark.store.event_log.arrival import Arrival, timeline_rows
from tidemark_streaming.snapshot.history import Ledger, Timeline
from tidemark_streaming.snapshot.tables import Tables


def arrivals(settings: Settings, numbers: range, events: int = 10) -> None:
    """Append arrivals to the timeline of the source `clicks`."""
    rows = [Arrival(n, n, None, n, events, n, n, 1, "{}") for n in numbers]
    path = f"{settings.warehouse}/{settings.database}/clicks_timeline"
    write_deltalake(path, timeline_rows(rows), mode="append")


def run(settings: Settings, number: int) -> None:
    """Append a run of the asset `counts`, which processed one arrival."""
    facts = ledger.RunFacts(
        **dict.fromkeys(("run", "table_id"), ""),
        **dict.fromkeys(("windows", "quarantined", "warned", "late", "too_late"), 0),
        **dict.fromkeys(("no_event_time", "duplicate", "started_at", "ended_at"), 0),
        **dict.fromkeys(("window_from", "window_to", "watermark")),
        asset="counts",
        mode="incremental",
        late_events="exclude",
        commit_number=number,
        from_arrival=number - 1,
        through_arrival=number,
        on_time=10,
        reported=True,
    )
    rows = pa.Table.from_pylist([asdict(facts)], schema=ledger.SCHEMA)
    write_deltalake(f"{settings.warehouse}/{settings.database}/runs", rows, mode="append")


def test_rows_are_counted_once_although_a_read_failed(tmp_path: Path) -> None:
    """A store may fail between the read of the ledger and that of the timeline."""
    settings = Settings(home=tmp_path)
    timeline, tables = Timeline("clicks"), Tables.of_database(settings)
    runs = Ledger({"counts": timeline})
    arrivals(settings, range(2))
    run(settings, 0)
    runs.read_new_rows(tables)
    arrivals(settings, range(2, 5))
    for number in (1, 2, 3):
        run(settings, number)
    folder = Path(settings.warehouse) / settings.database / "clicks_timeline"
    hidden = {file: file.with_suffix(".hidden") for file in folder.glob("*.parquet")}
    for file, other in hidden.items():
        file.rename(other)
    for _ in range(2):
        with pytest.raises(OSError, match="clicks_timeline"):
            runs.read_new_rows(tables)
    for file, other in hidden.items():
        other.rename(file)
    for _ in range(2):
        runs.read_new_rows(tables)
        timeline.read_new_rows(tables)
    assert (timeline.count, timeline.events, list(timeline.rows)) == (5, 50, [10] * 5)
    found = runs.runs_of("counts", "")
    assert (found.ended["incremental"], found.counted["incremental", "on_time"]) == (4, 40)
    assert (found.as_of, found.commit_number) == (3, 3)


@pytest.mark.parametrize("more", [0, 1])
def test_totals_are_those_of_a_restored_copy_with_as_many_commits(
    tmp_path: Path, more: int
) -> None:
    settings = Settings(home=tmp_path)
    timeline, tables = Timeline("clicks"), Tables.of_database(settings)
    runs = Ledger({"counts": timeline})
    for number in range(3):
        arrivals(settings, range(number, number + 1))
        run(settings, number)
    timeline.read_now(tables)
    runs.read_new_rows(tables)
    database = Path(settings.warehouse) / settings.database
    for table in ("clicks_timeline", "runs"):
        for version in (1, 2):
            (database / table / f"_delta_log/{version:020d}.json").unlink()
    for number in range(1, 3 + more):
        arrivals(settings, range(number, number + 1), events=2)
        run(settings, number)
    timeline.read_now(tables)
    runs.read_new_rows(tables)
    assert list(timeline.rows) == [10, *[2] * (2 + more)]
    assert runs.runs_of("counts", "").ended == {"incremental": 3 + more}
    assert runs.runs_of("counts", "").recent[-1].rows == 2
