"""Tests of commit conflicts, which are recognized by an error's class and not by its text."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors.exceptions.connect import AnalysisException, SparkConnectGrpcException

from tidemark.base.errors import ConflictError, DataError
from tidemark.store.refusals import translate_refusals

WHAT = "write table 'conflicts_hourly'"
ELSE = (
    OSError("[Errno 5] Input/output error: '/home/u/tidemark/conflicts_hourly/part-1.parquet'"),
    DeltaError("Generic error: file /srv/ConcurrentUsers/x/part-1.parquet: Corrupt footer"),
    AnalysisException(
        "[PATH_NOT_FOUND] Path does not exist: /srv/ConcurrentUsers/conflicts_hourly.",
        errorClass="PATH_NOT_FOUND",
    ),
    SparkConnectGrpcException("(java.io.IOException) /srv/CONCURRENT/conflict: broken pipe"),
)
CONFLICTS = (
    *(
        SparkConnectGrpcException(f"[{kind}] Another one was quicker.", errorClass=kind)
        for kind in (
            "DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
            "DELTA_METADATA_CHANGED",
            "DELTA_PROTOCOL_CHANGED",
            "DELTA_TABLE_ALREADY_EXISTS",
            "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
        )
    ),
    SparkConnectGrpcException("[DELTA_CONCURRENT_WRITE] Another one was quicker."),
    SparkConnectGrpcException("(io.delta.exceptions.ConcurrentAppendException) It was quicker."),
)


@pytest.mark.parametrize("error", ELSE, ids=lambda e: type(e).__name__)
def test_an_error_that_only_mentions_a_conflict_is_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, translate_refusals(WHAT):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("error", CONFLICTS, ids=str)
def test_a_conflict_in_the_engine_is_translated(error: Exception) -> None:
    wrote = "another run wrote it at the same time"
    with pytest.raises(ConflictError, match=wrote), translate_refusals(WHAT):
        raise error


def test_a_conflict_of_two_writers_is_translated(tmp_path: Path) -> None:
    place, rows = str(tmp_path / "t"), pa.table({"a": [1]})
    own = CommitProperties(app_transactions=[Transaction("app", 1)])
    write_deltalake(place, rows)
    late, first = DeltaTable(place), CommitProperties(None, 0)
    write_deltalake(DeltaTable(place), rows, mode="append", commit_properties=own)
    for properties in (own, first):
        with pytest.raises(ConflictError), translate_refusals(WHAT):
            write_deltalake(late, rows, mode="overwrite", commit_properties=properties)


def test_a_full_disk_is_reported_instead_of_a_conflict() -> None:
    with (
        pytest.raises(DataError, match="'conflicts_hourly': the disk is full"),
        translate_refusals(WHAT),
    ):
        raise OSError("No space left on device: '/conflict'")
