"""Join with lookup tables, each as of a recorded version.

If a table is corrected tomorrow, joining yesterday's events with it gives another result. The
timeline therefore records, for each arrival, the version that each lookup table had at that time. A
transform joins its rows with the versions that their own arrivals recorded. A replay, a backfill
and any division into runs then give the same rows.

Arrivals from before a lookup table was declared use the first version of it that was recorded.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from tidemark.base.errors import DataError, summarize_error
from tidemark.define.source import Source, lookup_name
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

_ENFORCED = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


@dataclass(frozen=True)
class _Span:
    """Arrivals (after, through] to which the same `versions` of the lookup tables apply."""

    after: int
    through: int
    versions: dict[str, int]


def current_versions(warehouse: Warehouse, source: Source) -> dict[str, int]:
    versions = dict[str, int]()
    for lookup in source.lookups:
        versions[lookup_name(lookup)] = _read_version(warehouse, source, lookup)
    return versions


def recorded_versions(
    log: Log, names: Sequence[str], after_arrival: int, last_arrival: int
) -> list[_Span]:
    """Return the arrivals (after_arrival, last_arrival] as spans, each with the versions that apply
    to it.

    Spans are in order. Without arrivals in that range, return one span with the current versions.

    Args:
        names: the names of the lookup tables.
    """
    arrivals = log.read_timeline(after_arrival, last_arrival)
    if not arrivals:
        current = current_versions(log.warehouse, log.source)
        return [_Span(after_arrival, last_arrival, _select_versions(names, current))]
    spans: list[_Span] = []
    # Many arrivals have the same versions, and the first version is needed for few tables.
    first_versions = dict[str, int]()
    for arrival in arrivals:
        versions = _select_versions(names, json.loads(arrival.lookups))
        for name in names:
            if name not in versions:
                if name not in first_versions:
                    first_versions[name] = _find_first_version(log, name)
                versions[name] = first_versions[name]
        if spans and spans[-1].versions == versions:
            spans[-1] = replace(spans[-1], through=arrival.arrival)
        else:
            before = spans[-1].through if spans else after_arrival
            spans.append(_Span(before, arrival.arrival, versions))
    return spans


def read_lookup_table(warehouse: Warehouse, source: Source, name: str, version: int) -> DataFrame:
    (lookup,) = (r for r in source.lookups if lookup_name(r) == name)
    # By default, Delta refuses a version older than the retention, even if its files still exist.
    warehouse.spark.conf.set(_ENFORCED, "false")
    rows = warehouse.spark.read.format("delta").option("versionAsOf", version)
    table = rows.load(_lookup_path(warehouse, lookup))
    try:
        _ = table.schema
    except AnalysisException as error:
        raise DataError(
            f"Version {version} of lookup table '{lookup}', which arrivals of source "
            f"'{source.name}' recorded, can't be read: {summarize_error(error)}. Restore it from a "
            "backup, and keep the history of lookup tables when you vacuum them."
        ) from None
    return table


def _read_version(warehouse: Warehouse, source: Source, lookup: str) -> int:
    path = _lookup_path(warehouse, lookup)
    version = warehouse.version_at(path)
    if version is None:
        raise DataError(
            f"Source '{source.name}' has the lookup table '{lookup}', but there is no Delta table "
            f"at '{path}': create it, then ingest."
        )
    return version


def _find_first_version(log: Log, name: str) -> int:
    for arrival in log.read_timeline():
        versions = json.loads(arrival.lookups)
        if name in versions:
            return int(versions[name])
    raise DataError(
        f"No arrival of source '{log.source.name}' has recorded a version of its lookup table "
        f"'{name}' yet: ingest more events first."
    )


def _select_versions(names: Sequence[str], versions: dict[str, int]) -> dict[str, int]:
    return {name: versions[name] for name in names if name in versions}


def _lookup_path(warehouse: Warehouse, lookup: str) -> str:
    if "/" in lookup:
        return lookup
    return warehouse.path_of(lookup)
