"""A short fault-injection campaign (`make faults` kills a thousand times), and its check, which
finds a lost event, a duplicate event, a window that counts an event twice, and a damaged table."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from campaign.exactly_once import differing, miscounted, windows
from campaign.home import own_settings, tracebacks
from campaign.run import DIRECT, Bounds, campaign
from helpers.data.whole import damaged
from tidemark.base.instants import as_datetime

KINDS = ("machine", "worker+ingest")
DIRECTLY = ("at columns", "at sent")


# Kills a real engine, ingest and stream, and waits until each has restarted.
@pytest.mark.nightly
@pytest.mark.slow
def test_each_event_is_counted_once_after_kills(tmp_path: Path) -> None:
    said: list[str] = []
    report = campaign(
        own_settings(tmp_path),
        KINDS,
        Bounds(len(KINDS) + len(DIRECTLY), minutes=20),
        directly=DIRECTLY,
        seed=4,
        rate=50,
        tell=said.append,
    )
    assert report.wrong == []
    kinds = [*KINDS, *(f"{kind}{DIRECT}" for kind in DIRECTLY)]
    assert sorted(report.recovered) == sorted(kinds)
    assert report.kills == len(said) == len(kinds)
    assert report.sent > 0


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        ([0, 1, 2], []),
        ([0, 2], ["Of 3 events 1 are lost, such as 1."]),
        ([0, 1, 1, 2], ["Of 3 events 1 too many are there, such as 1."]),
        (
            [0, 1, 3],
            ["Of 3 events 1 are lost, such as 2.", "Of 3 events 1 too many are there, such as 3."],
        ),
    ],
)
def test_lost_and_duplicate_events_are_found(found: list[int], sentences: list[str]) -> None:
    assert [*miscounted("events", found, range(3))] == sentences


def test_a_window_that_counts_an_event_twice_is_found() -> None:
    second = 1_000_000
    events = [
        {"at": as_datetime(3 * second), "n": 3, "watermark": None},
        {"at": as_datetime(4 * second), "n": 6, "watermark": as_datetime(19 * second)},
        # Its window is final, so it is in no window.
        {"at": as_datetime(5 * second), "n": 9, "watermark": as_datetime(20 * second)},
    ]
    expected = windows(events)
    assert expected == {(0, 0): (2, 9)}
    assert [*differing("The table", expected, expected)] == []
    (said,) = differing("The table", {(0, 0): (3, 12)}, expected)
    assert "has 1 windows that are wrong" in said
    assert "(3, 12) instead of (2, 9)" in said


def test_a_damaged_table_is_found(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(tmp_path, pa.table({"n": [n]}), mode="append")
    assert [*damaged(tmp_path)] == []
    written = next(tmp_path.glob("*.parquet"))
    written.rename(tmp_path / "elsewhere")
    assert any("lacks its file" in sentence for sentence in damaged(tmp_path))
    (tmp_path / "elsewhere").rename(written)
    sorted((tmp_path / "_delta_log").glob("*.json"))[1].unlink()
    assert any("has a gap" in sentence for sentence in damaged(tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "Exception ignored in: <generator object follow at 0x1>",
        '    File "/site-packages/some/module.py", line 3, in call',
    ],
)
def test_a_traceback_in_a_log_is_found(tmp_path: Path, line: str) -> None:
    for name in ("engine.log", "stream.log", "ingest.log"):
        (tmp_path / name).write_text("follow numbers: 1 arrival\n")
    (tmp_path / "engine.log").write_text(f"{line}\n")
    assert [*tracebacks(tmp_path)] == []
    (tmp_path / "stream.log").write_text(f"before\n{line}\nafter\n")
    assert [*tracebacks(tmp_path)] == [f"stream.log has a traceback:\nbefore\n{line}\nafter"]
