"""Tests of the graph: tables know what they were computed from, also if no domain defines them."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import chain
from tidemark.define.derived.union import union
from tidemark.define.rollup import rollup
from tidemark.define.tables import LEDGER, Role, TableName
from tidemark.define.windows import Tumbling
from tidemark.store.graph import Graph
from tidemark.store.warehouse import Warehouse

COLUMNS = pa.table({"n": pa.array([1], pa.int64())})
OWNERS = [f"{kind} {letter}" for letter in "abcde" for kind in ("source", "asset")]
LINKS = st.dictionaries(
    st.sampled_from(OWNERS), st.sets(st.sampled_from(OWNERS), max_size=3), max_size=len(OWNERS)
)

OTHERS = replace(READINGS, name="others")
BOTH = union(name="both", of=[READINGS, OTHERS])
OF_BOTH = replace(PER_MINUTE, name="of_both", source=BOTH)
DAILY = rollup(of=PER_MINUTE, name="daily", window=Tumbling("1 day"))
TYPES = {"sensor": "STRING", "total": "DECIMAL(28,2)"}
WINDOWS = chain(name="windows", of=DAILY, types=TYPES)
OF_WINDOWS = replace(PER_MINUTE, name="of_windows", source=WINDOWS)


@pytest.fixture
def store(tmp_path: Path) -> Warehouse:
    """Return a warehouse without an engine."""
    return Warehouse(cast("Any", None), str(tmp_path), registered=False)


def tables_of(links: dict[str, set[str]]) -> list[TableName]:
    """Return two tables for each owner; the second names only some of the bases."""
    tables = [LEDGER]
    for owner, bases in links.items():
        name = owner.replace(" ", "_")
        tables.append(TableName(name, owner, Role.STATE, bases=tuple(sorted(bases))))
        tables.append(TableName(f"{name}_late", owner, Role.LATE, bases=tuple(sorted(bases))[:1]))
    return tables


def reachable(links: dict[str, set[str]], base: str) -> set[str]:
    """Return the owners that read a base: those with a path of any length to it."""
    paths = {(owner, read) for owner, bases in links.items() for read in bases}
    for _ in OWNERS:
        paths |= {(a, d) for a, b in paths for c, d in paths if b == c}
    return {owner for owner, read in paths if read == base} - {base}


@given(LINKS, st.sampled_from(OWNERS))
def test_the_walk_finds_exactly_all_dependents(links: dict[str, set[str]], base: str) -> None:
    found = [node.owner for node in Graph(tables_of(links)).nodes_below(base)]
    assert set(found) == reachable(links, base)
    assert len(found) == len(set(found))


@given(st.permutations(OWNERS), st.data())
def test_each_dependent_follows_its_bases(order: list[str], data: st.DataObject) -> None:
    links = {
        owner: data.draw(st.sets(st.sampled_from(order[:n]), max_size=3)) if n else set[str]()
        for n, owner in enumerate(order)
    }
    found = [node.owner for node in Graph(tables_of(links)).nodes_below(order[0])]
    for n, owner in enumerate(found):
        assert not links[owner] & set(found[n + 1 :])


@given(LINKS)
def test_properties_keep_the_bases(links: dict[str, set[str]]) -> None:
    for table in tables_of(links):
        copied = TableName.from_properties(str(table), table.table_properties)
        assert copied is not None
        assert (copied.table_identity, copied.bases) == (table.table_identity, table.bases)
        assert pickle.loads(pickle.dumps(table)).bases == table.bases


def test_tables_of_definitions_that_are_not_loaded_are_found(
    store: Warehouse, tmp_path: Path
) -> None:
    definitions = (PER_MINUTE, DAILY, OF_BOTH, OF_WINDOWS)
    names = [t for source in (READINGS, OTHERS, BOTH, WINDOWS) for t in source.own_tables]
    names += [t for definition in definitions for t in definition.own_tables]
    names += PER_MINUTE.with_side_tables("vip").own_tables
    for name in names:
        store.ensure_table(name, COLUMNS)
    (tmp_path / "tidemark" / "broken" / "_delta_log").mkdir(parents=True)
    graph = Graph.of_folder(str(tmp_path / "tidemark"))
    below = [node.name for node in graph.nodes_below("source others")]
    assert below == ["both", "of_both"]
    below = [node.name for node in graph.nodes_below("source readings")]
    assert sorted(below) == ["both", "daily", "of_both", "of_windows", "per_minute", "windows"]
    assert below.index("per_minute") < below.index("daily") < below.index("windows")
    assert below.index("windows") < below.index("of_windows")
    found = {table for node in graph.nodes.values() for table in node.tables}
    assert found == {*names}
    windows = graph.nodes["source windows"]
    assert windows.is_derived
    assert not windows.is_asset
    assert [*windows.of_role(Role.EVENT_LOG)] == ["windows_log"]
    assert not graph.nodes["source readings"].is_derived


def test_an_as_of_join_reads_both_sides() -> None:
    own = replace(READINGS, name="own", columns={"ts": "timestamp", "sensor": "string"})
    rates = replace(own, name="rates")
    renamed = {"rates.ts": "rated_at"}
    joined = asof_join(name="joined", left=own, right=rates, on=["sensor"], rename=renamed)
    assert {t.bases for t in joined.own_tables} == {("source own", "source rates")}


def test_a_changed_definition_changes_the_bases(store: Warehouse, tmp_path: Path) -> None:
    moved = replace(PER_MINUTE, source=BOTH)
    folder = str(tmp_path / "tidemark")
    for definition, base in ((PER_MINUTE, "readings"), (moved, "both")):
        store.ensure_table(definition.published_table, COLUMNS)
        (node,) = Graph.of_folder(folder).nodes.values()
        assert node.bases == (f"source {base}",)
    version = store.newest_version(moved.published_table)
    store.ensure_table(moved.published_table, COLUMNS)
    assert store.newest_version(moved.published_table) == version
