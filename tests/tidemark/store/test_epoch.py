"""Tests of epochs: a commit of a run that began before a fence is refused. No engine is needed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.run.erase.deletion import count_erasure, fence_assets
from tidemark.store.asset import Asset
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.kinds import Increment
from tidemark.store.committers import committer
from tidemark.store.committers.values import Merge
from tidemark.store.epoch import Epoch, ErasedMeanwhileError
from tidemark.store.event_log.log import Log
from tidemark.store.rows import Rows
from tidemark.store.state import MARKER
from tidemark.store.warehouse import Warehouse

ROWS = pa.table({"k": ["a"], "n": pa.array([1], pa.int64())})
PARTIALS = pa.table(
    {"commit_number": pa.array([0], pa.int64()), MARKER: pa.nulls(1, pa.string()), "n": [1]}
)
WINDOWS = pa.table({"commit_number": pa.array([0], pa.int64()), "n": [1]})
SIXES = rollup(of=PER_MINUTE, window=Tumbling("6 minutes"), name="sixes")
ON_KEY = Merge(on=("k",))

Write = Callable[[Warehouse, int, Epoch], object]
WRITES: list[Write] = [
    lambda store, number, epoch: store.append_rows(ROWS, "t", "run", number, epoch=epoch),
    lambda store, number, epoch: store.replace_rows(ROWS, "t", "n = 1", "run", number, epoch=epoch),
    lambda store, number, epoch: store.replace_rows(ROWS, "t", "TRUE", "run", number, epoch=epoch),
    lambda store, number, epoch: store.merge_rows(ROWS, "t", ON_KEY, "run", number, epoch=epoch),
    lambda store, _, epoch: store.merge_if(lambda: ROWS, "t", ON_KEY, "run", epoch),
]


@pytest.fixture(params=["disk", "store"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path)
    return f"{request.getfixturevalue('bucket')}/{uuid4().hex}"


def open_warehouse(location: str) -> Warehouse:
    return Warehouse(cast("Any", None), location, registered=False)


@pytest.fixture
def store(location: str) -> Warehouse:
    """Return a warehouse without an engine."""
    return open_warehouse(location)


@pytest.fixture
def other(location: str) -> Warehouse:
    """Return the same warehouse, as another process has it."""
    return open_warehouse(location)


def fence(store: Warehouse, number: int) -> None:
    store.append_rows(ROWS.slice(0, 0), "t", vouches={"erasures/s": number})


@pytest.mark.parametrize("write", WRITES)
def test_a_commit_of_an_earlier_epoch_is_refused(
    store: Warehouse, other: Warehouse, write: Write
) -> None:
    store.ensure_table("t", ROWS)
    write(store, 0, Epoch("s", 0, lambda: True))
    fence(other, 1)
    before = store.load_rows("t")
    with pytest.raises(ErasedMeanwhileError, match=r"'t'.*erased.*again"):
        write(store, 1, Epoch("s", 0, lambda: True))
    assert store.load_rows("t") == before
    write(store, 1, Epoch("s", 1, lambda: True))
    # Epochs of other states do not matter.
    write(store, 2, Epoch("recreated", 0, lambda: True))


@pytest.mark.parametrize("write", WRITES[:4])
def test_a_fence_at_the_same_time_as_a_commit_refuses_it(
    store: Warehouse, other: Warehouse, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    """The fence comes after the check of the epoch, just before the commit."""
    store.ensure_table("t", ROWS)
    fence(store, 0)
    fences = [1]

    def fence_first(name: str) -> None:
        original = getattr(committer, name)

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (passed on)
            if fences:
                fence(other, fences.pop())
            return original(*args, **kwargs)

        monkeypatch.setattr(committer, name, call)

    fence_first("write_deltalake")
    fence_first("merge_rows")
    with pytest.raises(ErasedMeanwhileError):
        write(store, 0, Epoch("s", 0, lambda: True))
    assert store.load_rows("t").num_rows == 0


def test_the_first_commit_to_a_table_checks_that_the_epoch_is_current(store: Warehouse) -> None:
    """A table that did not exist could not be fenced."""
    store.ensure_table("t", ROWS)
    with pytest.raises(ErasedMeanwhileError):
        store.append_rows(ROWS, "t", "run", 0, epoch=Epoch("s", 0, lambda: False))
    store.append_rows(ROWS, "t", "run", 0, epoch=Epoch("s", 0, lambda: True))
    # The table can be fenced from then on.
    store.append_rows(ROWS, "t", "run", 1, epoch=Epoch("s", 0, lambda: False))


def commit(asset: Asset, number: int = 0) -> None:
    """Commit as a run does: create the state, store partials, create and write windows."""
    if not asset.rolls_up:
        asset.table_id = asset.state.ensure_table(PARTIALS)
        marker = Increment(commit_number=number, after=Coverage(TimelinePosition(0)))
        partials = PARTIALS.set_column(0, "commit_number", pa.array([number], pa.int64()))
        asset.state.store_commit(partials, marker, asset.start_epoch)
    write_windows(asset, number)


def write_windows(asset: Asset, number: int) -> None:
    store, table = asset.warehouse, asset.transform.published_table
    store.ensure_table(table, WINDOWS)
    store.append_rows(WINDOWS, table, asset.commit_app, number, epoch=asset.start_epoch)


def erase(other: Warehouse) -> None:
    count_erasure(Log(other, READINGS))
    fence_assets(other, READINGS)


def create_log(store: Warehouse) -> None:
    columns: Rows = pa.table({"arrival": pa.array([0], pa.int64())})
    store.ensure_table(READINGS.log_table, columns)


@pytest.mark.parametrize("has_run", [False, True], ids=["first run", "later run"])
def test_a_run_that_began_before_an_erasure_commits_nothing(
    store: Warehouse, other: Warehouse, *, has_run: bool
) -> None:
    create_log(store)
    if has_run:
        commit(Asset(store, PER_MINUTE))
    run = Asset(store, PER_MINUTE)
    assert run.is_current()
    erase(other)
    assert not run.is_current()
    with pytest.raises(ErasedMeanwhileError):
        commit(run, number=int(has_run))
    commit(Asset(store, PER_MINUTE), number=int(has_run))


@pytest.mark.parametrize("definition", [PER_MINUTE, SIXES], ids=["asset", "roll-up"])
def test_a_run_that_publishes_during_an_erasure_is_refused(
    store: Warehouse, other: Warehouse, definition: Definition
) -> None:
    """Its published table did not exist when the erasure listed the tables."""
    create_log(store)
    base = Asset(store, PER_MINUTE)
    base.table_id = base.state.ensure_table(PARTIALS)
    base.state.store_commit(PARTIALS, Increment(commit_number=0), base.start_epoch)
    run = Asset(store, definition) if definition is SIXES else base
    erase(other)
    with pytest.raises(ErasedMeanwhileError):
        write_windows(run, 0)


def test_a_run_whose_tables_an_erasure_has_deleted_can_not_recreate_them(
    store: Warehouse, other: Warehouse
) -> None:
    """An erasure deletes the tables of rebuilds, and a next rebuild may have begun already."""
    create_log(store)
    side = PER_MINUTE.with_side_tables("rebuild")
    run = Asset(store, side)
    run.table_id = run.state.ensure_table(PARTIALS)
    erase(other)
    other.drop_table(side.state_table)
    assert not run.is_current()
    Asset(other, side).state.ensure_table(PARTIALS)
    with pytest.raises(ErasedMeanwhileError):
        run.state.store_commit(PARTIALS, Increment(commit_number=0), run.start_epoch)
    with pytest.raises(ErasedMeanwhileError):
        write_windows(run, 0)


def test_assets_of_other_sources_are_not_fenced(store: Warehouse, other: Warehouse) -> None:
    create_log(store)
    definition = replace(PER_MINUTE, name="clicks", source=replace(READINGS, name="clicks"))
    commit(Asset(store, definition))
    run = Asset(store, definition)
    erase(other)
    assert run.is_current()
    commit(run, number=1)
