"""A chain of final windows refuses to continue if other windows are in quarantine than before."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from helpers.data.support import PER_MINUTE
from tidemark.define import aggregates as agg
from tidemark.define.derived.chain import Chain, chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.expectations.general import between
from tidemark.store.rows import INSTANT
from tidemark_streaming.snapshot.asset_results import AssetResults
from tidemark_streaming.snapshot.tables import Tables

MINUTE = 60_000_000
Window = tuple[int, str | None]
"""The start of a window, in minutes, and its key."""
READ: list[Window] = [(0, "a"), (1, "b"), (1, None)]
ASSET = replace(
    PER_MINUTE,
    aggregates={"n": agg.count()},
    expectations=(between("n", 0, 5, mostly=0.6),),
)


def write(folder: Path, table: str, names: tuple[str, str], windows: Sequence[Window]) -> None:
    """Write rows with a window and a key. The second bound of a chain is its last instant."""
    last = 1 if names[1] == "window_last" else 0
    rows = {
        names[0]: pa.array([start * MINUTE for start, _ in windows], pa.int64()).cast(INSTANT),
        names[1]: pa.array([(start + 1) * MINUTE - last for start, _ in windows], pa.int64()).cast(
            INSTANT
        ),
        "sensor": pa.array([key for _, key in windows], pa.string()),
        "final": pa.array([True] * len(windows), pa.bool_()),
    }
    write_deltalake(f"{folder}/{table}", pa.table(rows), mode="overwrite")


@pytest.mark.parametrize(
    ("published", "has_moved"),
    [
        (READ, False),
        # The chain has not come to this window.
        ([*READ, (9, "a")], False),
        ([*READ, (0, "b")], True),
        ([*READ[:2], (9, "a")], True),
        ([*READ[:2], (1, "c")], True),
        ([], True),
    ],
)
def test_windows_that_moved_are_found(
    tmp_path: Path, published: Sequence[Window], *, has_moved: bool
) -> None:
    hours = chain(name="hours", of=ASSET)
    write(tmp_path, ASSET.published_table, ("window_start", "window_end"), published)
    write(tmp_path, hours.log_table, ("window_first", "window_last"), READ)
    assert find(tmp_path, hours, 5) == has_moved
    # A chain of changes also has the windows in quarantine.
    assert not find(tmp_path, chain(name="hours", of=ASSET, rows="changes"), 5)


def find(folder: Path, source: DerivedSource, minutes: int) -> bool:
    assert isinstance(source.derivation, Chain)
    results = AssetResults(source, source.derivation, Tables(str(folder)))
    return results.has_moved_windows(minutes * MINUTE + source.derivation.settling_time)
