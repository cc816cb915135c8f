"""Erase events in tables, marts and old files, and report copies that are out of reach.

`run.erase.erase` deletes events and recomputes the windows that counted these events. This module
prevents ingests during an erasure, rebuilds the marts, and reports copies outside the tables.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tables import REBUILD, Role
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.run.erase import erase as run
from tidemark.run.erase.erase import ErasureReport
from tidemark.store import operations
from tidemark.store.operations import Kind
from tidemark.store.upkeep.maintenance import (
    RETENTION,
    MaintenanceResult,
    own_tables,
    purge_old_files,
)
from tidemark.store.warehouse import SCRATCH, Warehouse
from tidemark.verify import record
from tidemark_streaming.dbt import marts
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.ingest.ingest_record import lock_ingest
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.streams import desired_streams


@dataclass(frozen=True)
class ErasureRequest:
    """A request to erase events of a source.

    Args:
        where: the events, as a SQL condition on the columns of the event log.
        texts: dead letters whose content contains one of these texts are also erased.
        dry_run: true to only report what would be erased.
        vacuum: true to remove old files immediately.
    """

    source: Source
    where: str
    texts: Sequence[str] = ()
    dry_run: bool = False
    vacuum: bool = False


@dataclass(frozen=True)
class Report:
    """Everything that an erasure changed or would change, and the copies that it does not reach.

    Args:
        erased: the changes in Tidemark's tables.
        marts: the marts that are rebuilt.
        vacuumed: the tables whose old files were removed, with the number of files.
        readable_until: the latest time at which earlier versions, with the events, can be read;
            None if no event was erased, if the old files were removed, and for a dry run.
        beyond: notes on copies that the erasure does not reach.
    """

    erased: ErasureReport
    marts: list[str]
    vacuumed: list[MaintenanceResult] = field(default_factory=list[MaintenanceResult])
    readable_until: str | None = None
    beyond: list[str] = field(default_factory=list[str])


def erase_everywhere(
    settings: Settings,
    warehouse: Warehouse,
    domains: Domains,
    request: ErasureRequest,
    address: str,
    on_progress: ProgressCallback = ignore_progress,
) -> Report:
    """Erase events from a source and from everything that was computed from it. Return a report.

    If the request is a dry run, change nothing, and report what would be erased. Otherwise, no
    ingest of the source or of its derived sources can run in the meantime.

    Args:
        domains: all definitions, in which the affected derived sources and assets are found.
        address: the engine's address, for dbt.

    Raises:
        ConflictError: the source is being ingested.
        DataError: with `vacuum`, a stream of one of the source's assets runs or will be restarted;
            or a mart can't be built.
        DefinitionError: as in `run.erase.erase`; or the source is derived.
    """
    source = request.source
    derived = _find_derived(domains, source)
    sources = [source, *derived]
    definitions = _find_definitions(domains, sources)
    if request.vacuum and not request.dry_run:
        _check_streams(settings, definitions)
    affected_marts = _find_affected_marts(settings, warehouse, definitions)

    def rebuild_marts() -> None:
        for definition in definitions:
            record.delete_differences(warehouse, definition.name)
        if affected_marts:
            on_progress(f"rebuild {', '.join(affected_marts)}")
            project = marts.Marts(settings)
            outcomes = project.build_marts(warehouse, address, affected_marts, full_refresh=True)
            marts.raise_if_any(marts.describe_failure(outcomes))

    with ExitStack() as locks:
        if not request.dry_run:
            for ingested in _list_ingested_sources(source, derived):
                locks.enter_context(lock_ingest(warehouse, ingested))
        erasure = run.erase_events(
            warehouse,
            source,
            definitions,
            request.where,
            request.texts,
            derived=derived,
            dry_run=request.dry_run,
            on_finish=rebuild_marts,
            on_progress=on_progress,
        )
        notes = _list_notes_on_operations(warehouse, source)
        notes += _list_notes_on_copies(settings, domains, request, erasure)
        notes += _list_notes_on_temporary_files(warehouse, erasure)
        notes += _list_undefined_states(warehouse, domains)
        notes += _find_unbuilt_tables(settings, warehouse)
        has_changed = bool(erasure.events or erasure.resumed)
        rebuilt_marts = affected_marts if has_changed else []
        report = Report(erasure, rebuilt_marts, beyond=notes)
        if request.dry_run:
            return report
        if not request.vacuum:
            if erasure.id is None:
                return report
            return replace(report, readable_until=format_instant(erasure.at + RETENTION))
        on_progress("delete old files")
        tables = _list_searched_tables(sources, definitions)
        vacuumed = list(purge_old_files(warehouse, tables, erasure.at))
        mart_tables = warehouse.open_marts(registered=False)
        vacuumed += purge_old_files(mart_tables, affected_marts, erasure.at)
        for result in vacuumed:
            if result.spared:
                notes.append(f"Table '{result.table}' keeps {result.spared}.")
        return replace(report, vacuumed=vacuumed, beyond=notes)


def _find_definitions(domains: Domains, sources: Sequence[Source]) -> list[Definition]:
    """Return the assets that read one of the sources."""
    names = {source.name for source in sources}
    definitions = list[Definition]()
    for definition in domains.transforms.values():
        if definition.source.name in names:
            definitions.append(definition)
    return definitions


def _list_ingested_sources(source: Source, derived: Sequence[DerivedSource]) -> list[Source]:
    """Return the sources that no process may ingest during the erasure."""
    ingested: list[Source] = [source, *derived]
    for derived_source in derived:
        # A rebuild of a derived source ingests its side tables.
        ingested.append(derived_source.with_side_tables(REBUILD))
    return ingested


def _list_searched_tables(
    sources: Sequence[Source], definitions: Sequence[Definition]
) -> list[str]:
    """Return each table once that can have contained an erased event."""
    tables = list[str]()
    for source in sources:
        tables += run.list_tables(source, definitions)
    tables.append(record.TABLE)
    return list(dict.fromkeys(tables))


def _find_derived(domains: Domains, source: Source) -> list[DerivedSource]:
    """Return the sources derived from a source. An erasure also deletes rows of these sources.

    Raises:
        DefinitionError: the source is itself derived.
    """
    if isinstance(source, DerivedSource):
        bases = " and ".join(f"'{base.name}'" for base in source.base_sources)
        first = source.base_sources[0].name
        raise DefinitionError(
            f"'{source.name}' is computed from {bases}: erase the events there, as with `tidemark "
            f"erase {first} --where ...`. The erasure continues into '{source.name}'."
        )
    return domains.find_downstream(source)


def _check_streams(settings: Settings, definitions: Sequence[Definition]) -> None:
    desired = desired_streams.read_all(settings)
    for definition in definitions:
        name = definition.name
        if name in desired:
            raise DataError(
                f"The stream of '{name}' runs or will be restarted, and reads files that "
                f"--vacuum deletes: stop it with `tidemark stream {name} --stop`, or omit "
                "--vacuum."
            )


def _find_affected_marts(
    settings: Settings, warehouse: Warehouse, definitions: Sequence[Definition]
) -> list[str]:
    """Return the existing marts that read one of the assets."""
    existing = set(warehouse.open_marts(registered=False).list_tables())
    if not existing or not marts.has_project(settings):
        return []
    project = marts.Marts(settings)
    readers = set[str]()
    for definition in definitions:
        for table in definition.own_tables:
            readers.update(project.find_readers(table))
    return sorted(readers & existing)


def _list_notes_on_copies(
    settings: Settings, domains: Domains, request: ErasureRequest, erasure: ErasureReport
) -> list[str]:
    """Return notes on data that may still contain the events: data that the erasure can't delete,
    or does not search."""
    source = request.source
    sentences = list[str]()
    if source.name in domains.ingestions:
        sentences.append(_describe_input_copies(settings, domains, source))
    if source.lookups:
        sentences.append(
            f"The lookup tables of '{source.name}' ({', '.join(source.lookups)}) "
            "are unchanged: delete the same person's rows there yourself."
        )
    if erasure.unsearched > 0:
        sentences.append(
            f"The bytes of {format_count(erasure.unsearched, 'dead letter')} of "
            f"'{source.name}' were kept, because there are no columns to search, and none "
            "of the texts of --dead-letters-containing is in them."
        )
    for sent in erasure.sent:
        sentences.append(
            f"{sent.outlet} has records of {format_count(sent.total, 'window')} of '{sent.asset}' "
            "that contained an erased event. Published records can't be recalled: "
            f"`tidemark sink {sent.asset}` publishes the corrected windows, and the topic's "
            "retention deletes the others."
        )
    for pipeline in domains.pipelines:
        if pipeline.source.name == source.name:
            topics = ", ".join(pipeline.outputs)
            sentences.append(f"{pipeline} has written events to {topics}, which still have them.")
    sentences.append(
        "Not searched: Dagster's records of runs and checks, Spark's event log, and copies of the "
        "tables that readers made."
    )
    return sentences


def _describe_input_copies(settings: Settings, domains: Domains, source: Source) -> str:
    connector = domains.ingestions[source.name].connector(settings.landing_of(source.name))
    if isinstance(connector, KafkaConnector):
        topics = ", ".join(connector.topics)
        where = f"The records in the topics {topics} at {connector.broker_addresses} are unchanged"
    elif isinstance(connector, FileConnector):
        where = f"The files in '{connector.path}' are unchanged"
    elif isinstance(connector, DeltaConnector):
        where = f"The table '{connector.path}' is unchanged"
    else:
        where = f"The data that the connector of '{source.name}' reads is unchanged"
    return f"{where}: Tidemark does not write there, and does not ingest the same arrivals again."


def _list_notes_on_temporary_files(warehouse: Warehouse, erasure: ErasureReport) -> list[str]:
    """Return one note that lists the runs' temporary folders that could not be removed; no note if
    there are none."""
    if not erasure.unswept:
        return []
    return [
        (
            f"Temporary files of runs in '{warehouse.path_of(SCRATCH)}' still exist "
            f"({', '.join(erasure.unswept)}). The process that uses them deletes them at its end, "
            "or `tidemark maintain` deletes them one day after they were written. If they exist "
            "after that, delete them yourself."
        )
    ]


def _list_undefined_states(warehouse: Warehouse, domains: Domains) -> list[str]:
    """Return one note that lists the states of undefined assets that don't record their bases.

    An earlier version of Tidemark wrote them, so that the erasure can't determine whether they were
    computed from the source.
    """
    defined_owners = {d.state_table.owner for d in domains.transforms.values()}
    undefined = list[str]()
    for table in own_tables(warehouse):
        lacks_bases = table.role is Role.STATE and not table.bases
        if lacks_bases and table.owner not in defined_owners:
            undefined.append(table)
    if not undefined:
        return []
    return [
        f"No domain defines the assets of {', '.join(undefined)}, and these tables don't record "
        "what they were computed from: check their content yourself."
    ]


def _list_notes_on_operations(warehouse: Warehouse, source: Source) -> list[str]:
    """Return a note for each unfinished erasure of the source."""
    unfinished = operations.find_unfinished(warehouse.path_of("").rstrip("/"))
    owner = source.log_table.owner
    notes = list[str]()
    for operation in unfinished:
        if operation.kind == Kind.ERASE and operation.owner == owner:
            notes.append(str(operation))
    return notes


def _find_unbuilt_tables(settings: Settings, warehouse: Warehouse) -> list[str]:
    """Return one note that lists the tables in the marts' database that no dbt model creates; no
    note if there are none."""
    mart_tables = warehouse.open_marts(registered=False)
    unbuilt = set(mart_tables.list_tables())
    if unbuilt and marts.has_project(settings):
        unbuilt -= set(marts.Marts(settings).list_marts())
    if not unbuilt:
        return []
    pronoun = "its" if len(unbuilt) == 1 else "their"
    return [
        (
            f"No dbt model creates {', '.join(sorted(unbuilt))} in '{mart_tables.database}': "
            f"check {pronoun} content yourself."
        )
    ]
