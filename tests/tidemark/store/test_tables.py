"""Tests of table names: no two tables share one, and a writer refuses another owner's table."""

import pickle
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.base.errors import DefinitionError
from tidemark.define.tables import SYSTEM_TABLES, TableName, check_names
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.home.domains import Domains

NAMES = st.text("ab_", min_size=1, max_size=4).map(lambda rest: f"a{rest}")
_ENDS = "log timeline dead_letters state late late_loss panes quarantine state_state"
SUFFIXES = st.sampled_from(
    ["", "__rebuild", "__rebuild_state", *(f"_{end}" for end in _ENDS.split())]
)
COLUMNS = pa.table({"n": pa.array([1], pa.int64())})


def known(sources: Sequence[str], assets: Sequence[str]) -> Domains:
    first = {name: replace(READINGS, name=name) for name in sources}
    source = next(iter(first.values()), READINGS)
    made = {name: replace(PER_MINUTE, name=name, source=source) for name in assets}
    return Domains(first, {}, made)


def clash(found: Domains) -> bool:
    try:
        check_names(found.list_tables())
    except DefinitionError:
        return True
    return False


@pytest.mark.parametrize(
    ("sources", "assets", "words"),
    [
        (["orders"], ["orders_log"], "'orders_log' would be both the event log of source 'orders'"),
        (["orders"], ["runs"], "a system table of Tidemark and the published table of asset"),
        (["checks_x"], ["checks"], "a system table"),
        (["orders"], ["pm", "pm_late"], "'pm_late' would be both the late table of asset 'pm'"),
        (["orders"], ["pm", "pm_late_loss"], "late-loss table"),
        (["orders"], ["pm", "pm__rebuild"], "side tables 'pm__rebuild'"),
        (["a", "a_log"], ["a_log_timeline"], "timeline of source 'a_log'"),
    ],
)
def test_two_tables_of_one_name_are_refused(
    sources: list[str], assets: list[str], words: str
) -> None:
    with pytest.raises(DefinitionError, match=words):
        check_names(known(sources, assets).list_tables())


def test_lookup_tables_share_the_namespace() -> None:
    ingestion = Ingestion(
        READINGS, lambda _: cast("Any", None), lookups={"per_minute": lambda _: cast("Any", 0)}
    )
    found = Domains({}, {"readings": ingestion}, {"per_minute": PER_MINUTE})
    with pytest.raises(DefinitionError, match="lookup table of source 'readings'"):
        check_names(found.list_tables())


def test_names_that_differ_only_in_case_are_refused() -> None:
    (ledger, *_) = SYSTEM_TABLES
    with pytest.raises(DefinitionError, match="'Runs'"):
        check_names([TableName("Runs", "asset Runs", ledger.role)])


@given(
    st.lists(NAMES, max_size=2, unique=True),
    st.lists(st.tuples(NAMES, SUFFIXES).map("".join), max_size=3, unique=True),
)
def test_names_are_refused_exactly_if_two_tables_share_one(
    sources: list[str], assets: list[str]
) -> None:
    found = known(sources, assets)
    names = [*SYSTEM_TABLES, *{(str(t), t.table_identity): t for t in found.list_tables()}.values()]
    assert clash(found) == (len({*map(str, names)}) < len(names))


@pytest.mark.parametrize("again", [copy, deepcopy, lambda n: pickle.loads(pickle.dumps(n))])
def test_a_name_keeps_its_owner(again: Callable[[TableName], TableName]) -> None:
    name = PER_MINUTE.with_side_tables("vip").state_table
    assert (again(name), again(name).table_identity) == (name, name.table_identity)


@pytest.fixture
def store(tmp_path: Path) -> Warehouse:
    """Return a warehouse without an engine."""
    return Warehouse(cast("Any", None), str(tmp_path), registered=False)


def test_a_writer_refuses_a_table_of_another_owner(store: Warehouse) -> None:
    asset = replace(PER_MINUTE, name="readings_log")
    store.ensure_table(READINGS.log_table, COLUMNS)
    for _ in range(2):
        with pytest.raises(DefinitionError, match="event log of source 'readings'"):
            store.ensure_table(asset.published_table, COLUMNS)
    with pytest.raises(DefinitionError, match="rename the asset"):
        drop_asset(store, asset)
    store.ensure_table("someones", COLUMNS)
    with pytest.raises(DefinitionError, match="does not belong to Tidemark"):
        store.ensure_table(replace(PER_MINUTE, name="someones").published_table, COLUMNS)
    assert store.has_table(READINGS.log_table)


def test_side_tables_are_found_by_their_owner(store: Warehouse) -> None:
    vip = replace(PER_MINUTE, name="per_minute__vip")
    side = PER_MINUTE.with_side_tables("new")
    for table in (
        PER_MINUTE.published_table,
        vip.published_table,
        vip.state_table,
        side.published_table,
        side.state_table,
    ):
        store.ensure_table(table, COLUMNS)
    owned = [t for t in own_tables(store) if t.owner == PER_MINUTE.published_table.owner]
    assert [str(t) for t in owned if t.side] == ["per_minute__new", "per_minute__new_state"]
    assert [str(t) for t in owned if not t.side] == ["per_minute"]
    with pytest.raises(
        DefinitionError, match=r"side tables 'per_minute__vip'.*share one namespace"
    ):
        store.ensure_table(PER_MINUTE.with_side_tables("vip").published_table, COLUMNS)
