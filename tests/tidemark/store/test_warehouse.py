"""Tests of tables: a repeated write counts once, and unusable tables are refused."""

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.store.committers.values import Merge
from tidemark.store.warehouse import Warehouse

REGISTERED = True


def rows(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(n, n % 2) for n in numbers], "n BIGINT, odd INT")


def stored(warehouse: Warehouse) -> list[int]:
    return sorted(r["n"] for r in warehouse.read_frame("numbers").collect())


def test_a_version_is_written_once(spark: SparkSession, warehouse: Warehouse) -> None:
    warehouse.ensure_table("numbers", "n BIGINT, odd INT", "It's numbers")
    assert warehouse.append_rows(rows(spark, 1, 2), "numbers", "test", 0) == 2
    assert warehouse.append_rows(rows(spark, 1, 2), "numbers", "test", 0) is None
    assert warehouse.replace_rows(rows(spark, 4), "numbers", "odd = 0", "test", 1) == 1
    assert warehouse.replace_rows(rows(spark, 6), "numbers", "odd = 0", "test", 1) is None
    assert stored(warehouse) == [1, 4]
    here = rows(spark, 4, 5).withColumn("gone", F.lit(False))
    by_number = Merge(on=["n"], delete="s.gone", insert="NOT s.gone")
    assert warehouse.merge_rows(here, "numbers", by_number, "test", 2) == 2
    assert warehouse.merge_rows(here, "numbers", by_number, "test", 2) is None
    assert stored(warehouse) == [1, 4, 5]
    left = rows(spark, 4, 7).withColumn("gone", F.lit(True))
    assert warehouse.merge_rows(left, "numbers", by_number, "test", 3) == 1
    assert stored(warehouse) == [1, 5]


def test_a_missing_table_is_reported(warehouse: Warehouse) -> None:
    assert not warehouse.has_table("nothing")
    with pytest.raises(DataError, match="There is no table 'nothing' in"):
        warehouse.read_frame("nothing")


def test_a_table_written_by_a_newer_version_is_refused(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warehouse.ensure_table("numbers", "n BIGINT, odd INT")
    path = warehouse.path_of("numbers")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('tidemark.format' = '99')")
    fresh = Warehouse(spark, *warehouse.place)
    with pytest.raises(DataError, match=r"'numbers' was written by a newer Tidemark \(format 99"):
        fresh.read_frame("numbers")
    with pytest.raises(DataError, match="upgrade Tidemark"):
        fresh.ensure_table("numbers", "n BIGINT, odd INT")


def test_a_table_written_by_an_earlier_version_is_refused(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    path = warehouse.path_of("numbers")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (n BIGINT) USING delta TBLPROPERTIES ('tidemark.format' = 1)"
    )
    with pytest.raises(DataError, match=r"an earlier Tidemark \(format 1; .* choose another data"):
        warehouse.read_frame("numbers")


def test_an_unwritable_warehouse_is_reported(
    spark: SparkSession, engine: Settings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    warehouse = Warehouse(spark, str(tmp_path / "file"), "test_unwritable")
    with pytest.raises(
        DataError, match=r"Can't create table 'numbers' in .*a file exists at this path"
    ):
        warehouse.ensure_table("numbers", "n BIGINT")


def test_a_database_registered_at_another_location_is_refused(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    warehouse.ensure_table("numbers", "n BIGINT")
    moved = Warehouse(spark, str(tmp_path), warehouse.database)
    with pytest.raises(DataError, match="catalog has it at another location"):
        moved.ensure_table("numbers", "n BIGINT")


def test_the_registration_of_a_removed_table_creates_none(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """An erasure or a drop on another machine may remove a table before its registration."""
    warehouse.ensure_table("others", "n BIGINT")
    warehouse.catalog.register_table("numbers")
    with warehouse.catalog.registering_in_background():
        warehouse.catalog.register_table("numbers")
    assert not Path(warehouse.path_of("numbers")).exists()
    assert not spark.catalog.tableExists(f"{warehouse.database}.numbers")
    warehouse.ensure_table("numbers", "n BIGINT, odd INT")
    assert spark.table(f"{warehouse.database}.numbers").columns == ["n", "odd"]


@pytest.mark.parametrize("folder", ["tables", "Ann's (secret) curls"])
def test_a_database_with_the_tables_of_another_warehouse_is_found_before_any_work(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    name = f"test_{uuid4().hex[:12]}"
    settings = Settings(
        home=tmp_path, remote="sc://localhost", warehouse=str(tmp_path / folder), database=name
    )
    Warehouse.of_project(settings, spark).ensure_table("numbers", "n BIGINT")
    same = settings.model_copy(update={"warehouse": f"file://{settings.warehouse}/"})
    Warehouse.of_project(same, spark).register_tables("numbers")
    moved = settings.model_copy(update={"warehouse": str(tmp_path / "moved")})
    with pytest.raises(DataError, match="set TIDEMARK_DATABASE to another name") as raised:
        Warehouse.of_project(moved, spark)
    locations = [Warehouse(spark, it.warehouse, name).path_of("") for it in (settings, moved)]
    assert f"'{locations[0]}', not those in '{locations[1]}'" in str(raised.value)


def test_rows_with_other_columns_than_the_table_are_refused(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warehouse.ensure_table("numbers", "n BIGINT, odd INT")
    more = rows(spark, 1).withColumnRenamed("odd", "even")
    with pytest.raises(DataError, match=r"'numbers': the columns .* the table \(odd, even\)"):
        warehouse.append_rows(more, "numbers", "test", 0)
    other = spark.createDataFrame([("one", 1)], "n STRING, odd INT")
    with pytest.raises(DataError, match=r"'numbers': the columns .* the table \(n\)"):
        warehouse.replace_rows(other, "numbers", "odd = 1", "test", 1)
    assert stored(warehouse) == []
