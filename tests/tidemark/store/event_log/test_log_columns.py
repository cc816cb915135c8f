"""Tests of schema changes: an event log adds a source's new columns and refuses other changes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.support import PER_MINUTE, READINGS, ingest, published, reference, some_arrivals
from tidemark.base.errors import DefinitionError
from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

ARRIVALS = some_arrivals(count=6)


def declared(**more: str) -> Source:
    """Return the readings source with more columns, or with other types."""
    return replace(READINGS, columns={**READINGS.columns, **more})


def of(source: Source, transform: WindowedTransform = PER_MINUTE) -> WindowedTransform:
    return replace(transform, source=source)


def test_new_columns_are_added_and_null_in_earlier_rows(warehouse: Warehouse) -> None:
    store = warehouse
    ingest(store, READINGS, ARRIVALS[:1], ends=False)
    rows, versions = store.load_rows("readings_log").num_rows, []
    for more in ({"note": "string"}, {"note": "string", "x": "array<int>"}):
        log, before = Log(store, declared(**more)), store.newest_version("readings_log")
        log.ensure_tables()
        versions.append((log.schema_version, store.newest_version("readings_log") - before))
    log.ensure_tables()
    # The properties of the table are one commit, and its columns another.
    assert [*versions, log.schema_version] == [(2, 2), (3, 2), 3]
    found = store.load_rows("readings_log")
    assert found.num_rows == found["note"].null_count == found["x"].null_count == rows


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            {**READINGS.columns, "value": "bigint"},
            r"type of 'value' \(DOUBLE in the event log, BIGINT in the definition\)",
        ),
        (
            {k: t for k, t in READINGS.columns.items() if k != "price"},
            "column 'price', which is no",
        ),
        ({**READINGS.columns, "note": "string NOT NULL"}, "'note', which is new and NOT NULL"),
        (
            {"ts": "timestamp", "sensor": "string", "value": "double", "cost": "decimal(10,2)"},
            "column 'price', which is no longer declared",
        ),
    ],
    ids=["type", "gone", "not null", "renamed"],
)
def test_other_schema_changes_are_refused_and_nothing_is_written(
    warehouse: Warehouse, columns: Mapping[str, str], told: str
) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    tables = ("readings_log", "readings_timeline", "readings_dead_letters")
    before = [warehouse.newest_version(table) for table in tables]
    other = replace(READINGS, columns=columns)
    with pytest.raises(DefinitionError, match=told) as refused:
        Log(warehouse, other).ensure_tables()
    assert "or give the changed source a new name" in str(refused.value)
    assert [warehouse.newest_version(table) for table in tables] == before
    # With its earlier columns, the source continues.
    ingest(warehouse, READINGS, ARRIVALS[2:])
    incremental(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


def test_a_new_column_may_be_masked_and_stays_masked(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:1], ends=False)
    # Properties of a column that a process had no time to add have no effect.
    stale = {"tidemark.mask.mail": "dropped", "tidemark.schema.mail": "7"}
    warehouse.set_properties("readings_log", stale)
    Log(warehouse, READINGS).ensure_tables()
    plain = declared(mail="string")
    log = Log(warehouse, plain)
    log.ensure_tables()
    assert log.schema_version == 2
    for protect in ({"mail": Drop()}, {"value": Drop()}):
        with pytest.raises(DefinitionError, match="in the protection of"):
            Log(warehouse, replace(plain, mask=protect)).ensure_tables()
    kept = replace(declared(mail="string", card="string"), mask={"card": Drop()})
    Log(warehouse, kept).ensure_tables()
    with pytest.raises(DefinitionError, match="in the protection of 'card'"):
        Log(warehouse, replace(kept, mask={})).ensure_tables()


def test_runs_continue_and_read_the_new_column(warehouse: Warehouse) -> None:
    """This includes a stream with the earlier columns, and runs before the next arrival."""
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    noted = of(declared(note="string"))

    def counted(rows: DataFrame) -> DataFrame:
        return rows.where("note IS NULL OR note <> 'x'")

    incremental(warehouse, PER_MINUTE, limit=1)
    using = replace(noted, name="using", function=counted)
    incremental(warehouse, using)
    assert check_parity(warehouse, using).is_equal
    Log(warehouse, noted.source).ensure_tables()
    incremental(warehouse, PER_MINUTE, limit=1, pinned_definition=True)
    late = warehouse.read_schema(PER_MINUTE.late_table).names
    assert "note" not in late
    ingest(warehouse, noted.source, ARRIVALS[3:])
    incremental(warehouse, noted)
    assert warehouse.read_schema(PER_MINUTE.late_table).names == [*late, "note"]
    for asset in (noted, using):
        incremental(warehouse, asset)
        assert check_parity(warehouse, asset).is_equal
    assert published(warehouse, noted) == reference(ARRIVALS)


def test_the_late_table_adds_new_columns_and_refuses_type_changes(
    warehouse: Warehouse,
) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, PER_MINUTE)

    def added(kind: str) -> WindowedTransform:
        def function(rows: DataFrame) -> DataFrame:
            return rows.withColumn("twice", (F.col("value") * 2).cast(kind))

        return replace(PER_MINUTE, function=function)

    ingest(warehouse, READINGS, ARRIVALS[3:], ends=False)
    incremental(warehouse, added("double"))
    found = warehouse.load_rows(PER_MINUTE.late_table)
    assert 0 < found["twice"].null_count < found.num_rows
    ingest(warehouse, READINGS, [])
    state = warehouse.newest_version(PER_MINUTE.state_table)
    with pytest.raises(
        DefinitionError, match=r"types to columns of the late table: twice \(double → string\)"
    ):
        incremental(warehouse, added("string"))
    assert warehouse.newest_version(PER_MINUTE.state_table) == state
    # A definition without this column continues.
    incremental(warehouse, PER_MINUTE)
    backfill(warehouse, PER_MINUTE)
    assert "twice" not in warehouse.read_schema(PER_MINUTE.late_table).names
    assert check_parity(warehouse, PER_MINUTE).is_equal
