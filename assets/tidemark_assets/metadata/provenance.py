"""Tags of materializations that name the definition and the inputs of a table.

Dagster shows partitions as stale if their tags name a definition or inputs that differ from the
current ones. Materializations by a step have these tags automatically. All others need the complete
set: without the inputs' tags, Dagster would consider the inputs as changed.

A log grows with each ingest, but its existing events stay as they are. Its data version is
therefore constant until the log is recreated. Otherwise each arrival would mark all downstream
partitions as stale. The sensors use the ledger to find assets that have not processed all arrivals.
"""

from collections.abc import Collection

import dagster as dg
from dagster import AssetExecutionContext, OpExecutionContext, SensorEvaluationContext
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.rollup import RollUp, base_transform
from tidemark.define.source import Source
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import Names
from tidemark_streaming.snapshot.snapshot import Snapshot

Context = AssetExecutionContext | OpExecutionContext | SensorEvaluationContext


def inputs(transform: Definition) -> list[str]:
    """Return the tables from which the windows of a transform are computed."""
    if isinstance(transform, RollUp):
        return [transform.base.published_table]
    return [transform.source.log_table, *base_transform(transform).lookup_names]


def log_data_version(snapshot: Snapshot, source: Source) -> dg.DataVersion | None:
    """Return the data version of a source's log, which changes only if the log is recreated.

    Return None if the log does not exist.
    """
    identity = snapshot.tables.table_id(source.timeline_table)
    if identity is None:
        return None
    return dg.DataVersion(identity)


def version_tags(version: dg.DataVersion | None) -> dict[str, str]:
    """Return the tags that set the data version of a materialization, if no step logs it."""
    if version is None:
        return {}
    return {DATA_VERSION_TAG: version.value}


def data_version(materialization: dg.EventLogEntry) -> dg.DataVersion | None:
    """Return the data version of a materialization."""
    return extract_data_version_from_entry(materialization)


def provenance_tags(
    context: Context,
    names: Names,
    transform: Definition,
    definition: str,
    run: str,
    together: Collection[str] = (),
) -> dict[str, str]:
    """Return the tags of materializations of a transform's windows that are reported now.

    Args:
        definition: the fingerprint of the definition that wrote the windows.
        run: the ID of the run that changed the windows. It marks downstream assets as stale.
        together: tables that are reported at the same time. Dagster has only the earlier reports of
            these tables. The tags do not refer to those reports, because the windows would then
            seem stale.
    """
    tags = {CODE_VERSION_TAG: definition, DATA_VERSION_TAG: run}
    for input_table in inputs(transform):
        parent = names.key(input_table)
        record = context.instance.get_latest_data_version_record(parent)
        if record is None:
            version = None
        else:
            version = extract_data_version_from_entry(record.event_log_entry)
        pointer = NULL_EVENT_POINTER
        if record is not None and input_table not in together:
            pointer = str(record.storage_id)
        tags[get_input_data_version_tag(parent)] = (version or DEFAULT_DATA_VERSION).value
        tags[get_input_event_pointer_tag(parent)] = pointer
    return tags


def find_definition(warehouse: Warehouse, transform: Definition) -> str:
    """Return the fingerprint of the definition that wrote an asset's newest commit.

    The code may have another definition: a stream keeps the definition with which it was started.
    For a roll-up, or if no definition is recorded, return the fingerprint of the definition in the
    code.
    """
    rolls_up = transform.rolled_up_name is not None
    newest = "" if rolls_up else State(warehouse, transform).read_last_commit().definition
    return newest or compute_fingerprint(transform)
