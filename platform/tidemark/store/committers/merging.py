"""Merge with delta-rs, whose conditions use DataFusion's SQL instead of Spark's."""

import re
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from tidemark.store.committers.values import Merge
from tidemark.store.rows import arrow_schema

_INSTANT = re.compile(r"timestamp_micros\((-?\d+)\)")


def merge_rows(
    opened: DeltaTable, source: pa.Table, merge: Merge, properties: CommitProperties
) -> int:
    """Merge rows into a table, and return the number of rows written."""
    values = {f'"{name}"': f's."{name}"' for name in arrow_schema(opened.schema()).names}
    merger = opened.merge(
        source=source,
        predicate=for_datafusion(merge.match_condition().format(same="IS NOT DISTINCT FROM")),
        source_alias="s",
        target_alias="t",
        # The source is in memory, so its minimum and maximum values allow data skipping.
        streamed_exec=False,
        commit_properties=properties,
    )
    if merge.delete is not None:
        merger = merger.when_matched_delete(merge.delete)
    if merge.update is not None:
        merger = merger.when_matched_update(merge.only or values, _omit_if_true(merge.update))
    if merge.insert is not None:
        merger = merger.when_not_matched_insert(values, _omit_if_true(merge.insert))
    metrics: dict[str, Any] = merger.execute()
    written_rows = 0
    for kind in ("inserted", "updated", "deleted"):
        written_rows += int(metrics[f"num_target_rows_{kind}"])
    return written_rows


def for_datafusion(condition: str) -> str:
    """Translate a condition from Spark SQL to DataFusion SQL."""
    typed = "arrow_cast(\\1, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    return _INSTANT.sub(typed, condition).replace("`", '"')


def _omit_if_true(condition: str) -> str | None:
    return None if condition == "TRUE" else condition
