"""Of what a table was made, as tags of the materializations that tell of it.

Dagster shows partitions as stale whose tags name another definition than the one in the code, or
other inputs than there are now. What a step materializes by itself has these tags; whatever is told
of besides needs them, all of them: without its inputs it would seem to have new ones.

A log grows with each ingest, and what it had stays as it was. So its data version is the same as
long as it is the same log: of the partitions that are made of it no arrival makes all seem stale.
Which assets lack arrivals the sensors look at, by the ledger.
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
from tidemark.define.fingerprint import fingerprint
from tidemark.define.rollup import RollUp, counting
from tidemark.define.source import Source
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse
from tidemark_assets.names import Names
from tidemark_streaming.glance import Glance

Context = AssetExecutionContext | OpExecutionContext | SensorEvaluationContext


def inputs(transform: Definition) -> list[str]:
    """The tables of which the windows of a transform are made."""
    if isinstance(transform, RollUp):
        return [transform.base.table]
    return [transform.source.log_table, *counting(transform).references]


def same_log(glance: Glance, source: Source) -> dg.DataVersion | None:
    """The data version of a source's tables, which tells a log from another one in its place."""
    identity = glance.identity(source.timeline_table)
    return None if identity is None else dg.DataVersion(identity)


def tags_of(version: dg.DataVersion | None) -> dict[str, str]:
    """The tags by which a materialization that no step makes has a data version."""
    return {} if version is None else {DATA_VERSION_TAG: version.value}


def told_version(materialization: dg.EventLogEntry) -> dg.DataVersion | None:
    """The data version with which something was materialized."""
    return extract_data_version_from_entry(materialization)


def made_of(
    context: Context,
    names: Names,
    transform: Definition,
    definition: str,
    run: str,
    together: Collection[str] = (),
) -> dict[str, str]:
    """Tags of materializations of a transform's windows that are told of now.

    Args:
        definition: the fingerprint of the one that made it.
        run: the one that changed it, by which what is made of it in turn is stale.
        together: tables that are told of with it at once: what Dagster has of them is older than
            what it was made of, and would make it seem stale.
    """
    tags = {CODE_VERSION_TAG: definition, DATA_VERSION_TAG: run}
    for each in inputs(transform):
        parent = names.key(each)
        record = context.instance.get_latest_data_version_record(parent)
        version = (
            None if record is None else extract_data_version_from_entry(record.event_log_entry)
        )
        pointer = NULL_EVENT_POINTER
        if record is not None and each not in together:
            pointer = str(record.storage_id)
        tags[get_input_data_version_tag(parent)] = (version or DEFAULT_DATA_VERSION).value
        tags[get_input_event_pointer_tag(parent)] = pointer
    return tags


def definition_of(warehouse: Warehouse, transform: Definition) -> str:
    """The fingerprint of the definition that made an asset's newest commit. That need not be the
    one in the code: a stream goes on by the one that it was started with."""
    rolls_up = transform.follows is not None
    newest = "" if rolls_up else State(warehouse, transform).last().definition
    return newest or fingerprint(transform)
