"""Erasure: delete a person's events from a source's event log, and everything computed from them.

One commit deletes the events from the log. Every window that contained one of the events is then
recomputed from the log and replaced, as in a backfill, so batch and stream still agree. Each source
that is derived from this source is then changed in the same way. Rows that were computed from the
events are deleted from its event log. Rows that now have another partner, or none, are replaced.
The windows over these rows are recomputed.

Runs of these sources can continue in the meantime, on any machine. Those that may have read erased
events can't commit any more (`store.epoch`); they start again. New runs wait for the erasure
(`store.log_rewrite`), so that it does not have to compete with them.

Nothing that Tidemark records about an erasure reveals the events. Neither the condition nor a value
is in a commit, in the record of erasures (`store.upkeep.erasures`) or in a log file.

| a process that is killed | leaves |
| --- | --- |
| before the event log's commit | all events; dead letters may be empty already, and tables of |
| | rebuilds deleted. Request the erasure again |
| after this commit | outdated windows and derived sources; the next erasure of the source, with |
| | any condition, recomputes them |
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tidemark.base.errors import DataError
from tidemark.compute.affected import by_erasure as affected_by_erasure
from tidemark.compute.materialize import temp_tables
from tidemark.define.definition import Definition
from tidemark.define.derived.asof_join import AsOfSource
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.quality import results
from tidemark.run import runner, takeover
from tidemark.run.erase import recovery
from tidemark.run.erase.deletion import delete_erased_rows, replace_changed_rows
from tidemark.run.erase.report import ErasureReport, build_report
from tidemark.run.erase.search import (
    SearchResult,
    check_recomputable,
    find_windowed_assets,
    search_derived_source,
    search_source,
)
from tidemark.store import claims, operations
from tidemark.store.asset import Asset
from tidemark.store.event_log.log import Log
from tidemark.store.graph import Graph
from tidemark.store.lineage import Lineage, StaleError, WarehouseReader
from tidemark.store.log_rewrite import hold_rewrite
from tidemark.store.operations import Kind
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import ENDED, Erasure
from tidemark.store.upkeep.maintenance import own_tables
from tidemark.store.warehouse import SCRATCH, Warehouse


def erase_events(
    warehouse: Warehouse,
    source: Source,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str] = (),
    *,
    derived: Sequence[DerivedSource] = (),
    dry_run: bool = False,
    on_finish: Callable[[], None] | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> ErasureReport:
    """Delete the events that match a condition, and everything that was computed from them.

    The caller must ensure that no ingest of these sources runs in the meantime (`lock_ingest`). A
    dry run does not need this, and does not make other runs wait.

    Args:
        definitions: all assets of the source and of the derived sources.
        where: SQL condition on the columns of the log.
        texts: the content of dead letters that contain one of these texts is also deleted.
        derived: all sources that are derived from the source, each after its bases.
        on_finish: called before the erasure is recorded as finished; may be called twice.
    """
    log = Log(warehouse, source)
    newest = log.find_last_arrival() if warehouse.has_table(source.timeline_table) else None
    if newest is None:
        raise DataError(f"Source '{source.name}' has no arrivals yet: there is nothing to erase.")
    _check_definitions(warehouse, source, definitions, derived)
    _check_current(warehouse, definitions, derived)
    # Check the condition before other runs have to wait.
    affected_by_erasure.find_events(log, newest.arrival, where)
    work = _ErasureRun(log, derived, definitions, on_progress)
    for derived_source in work.list_sources_with_arrivals():
        check_recomputable(Log(warehouse, derived_source), derived_source)
    if dry_run:
        return work.plan_erasure(where, texts)
    owners = [derived_source.log_table.owner for derived_source in derived]
    operations.check_unfinished(warehouse, owners)
    with ExitStack() as rewrite_holds:
        for rewritten_source in [source, *derived]:
            rewrite_holds.enter_context(hold_rewrite(warehouse, rewritten_source, on_progress))
        # Another project may have computed its first rows while the erasure waited.
        _check_definitions(warehouse, source, definitions, derived)
        return work.erase_and_recompute(where, texts, on_finish)


def list_tables(source: Source, definitions: Sequence[Definition]) -> list[str]:
    """Return the tables that may hold data of a source's events."""
    tables: list[str] = [source.log_table, source.dead_letters_table]
    for definition in definitions:
        if definition.source.name == source.name:
            tables.extend(definition.own_tables)
    tables.append(results.TABLE)
    return list(dict.fromkeys(tables))


@dataclass(frozen=True)
class _ErasureRun:
    """An erasure of a source's events.

    Args:
        log: the source's event log.
        derived: the sources that are derived from the source, each after its bases.
        definitions: all assets of these sources.
    """

    log: Log
    derived: Sequence[DerivedSource]
    definitions: Sequence[Definition]
    on_progress: ProgressCallback

    @property
    def warehouse(self) -> Warehouse:
        return self.log.warehouse

    @property
    def _owner(self) -> str:
        return self.log.source.log_table.owner

    @property
    def event_logs(self) -> list[Log]:
        logs = [self.log]
        for derived_source in self.list_sources_with_arrivals():
            logs.append(Log(self.warehouse, derived_source))
        return logs

    def list_sources_with_arrivals(self) -> list[DerivedSource]:
        """Return the derived sources that have arrivals now."""
        sources = list[DerivedSource]()
        for derived_source in self.derived:
            if not self.warehouse.has_table(derived_source.timeline_table):
                continue
            if Log(self.warehouse, derived_source).find_last_arrival() is not None:
                sources.append(derived_source)
        return sources

    def plan_erasure(self, where: str, texts: Sequence[str]) -> ErasureReport:
        """Return the report of a dry run, with the changes that an erasure would make."""
        with temp_tables(self.warehouse) as temporary:
            search_result = search_source(
                self.log, self.definitions, where, texts, temporary, self._last_arrival()
            )
            report = build_report(
                self.log, self.definitions, search_result, dry_run=True, resumed=0
            )
            if not search_result.erasure.events:
                return report
            planned = {self.log.source.name: (self.log, search_result)}
            for derived_source in self.list_sources_with_arrivals():
                log = Log(self.warehouse, derived_source)
                search_result = search_derived_source(
                    log, derived_source, self.definitions, temporary, planned
                )
                planned[derived_source.name] = (log, search_result)
                report = self._extend_report(report, log, search_result, dry_run=True)
        return report

    def erase_and_recompute(
        self, where: str, texts: Sequence[str], on_finish: Callable[[], None] | None
    ) -> ErasureReport:
        """Finish interrupted erasures, and erase the events that match a condition."""
        warehouse = self.warehouse
        for log in self.event_logs:
            log.take_over()
        # Later arrivals are not searched: no ingest may have their rows in memory any more.
        last_arrival = self._last_arrival()
        resumed = self._finish_interrupted_erasures(on_finish)
        self._process_new_arrivals()
        with temp_tables(warehouse) as temporary:
            self.on_progress("search for the events")
            search_result = search_source(
                self.log, self.definitions, where, texts, temporary, last_arrival
            )
            report = build_report(
                self.log, self.definitions, search_result, dry_run=False, resumed=resumed
            )
            if not search_result.is_empty:
                self.on_progress("delete the events from the event log")
                operations.record_begin(warehouse, Kind.ERASE, self._owner)
                self._drop_versions()
                delete_erased_rows(self.log, search_result, temporary)
        if not search_result.is_empty:
            recovery.recompute_windows(
                self.log, self.definitions, search_result.erasure, self.on_progress
            )
            report = self._erase_downstream(report) or report
            self._record_end(on_finish)
        operations.record_end(warehouse, Kind.ERASE, self._owner)
        # Sweep last: the engine may continue for a moment with queries of a killed process.
        swept = claims.sweep_folders(warehouse.path_of(SCRATCH))
        return replace(report, swept=swept.removed, unswept=swept.remaining)

    def _last_arrival(self) -> int:
        newest = self.log.find_last_arrival()
        return -1 if newest is None else newest.arrival

    def _finish_interrupted_erasures(self, on_finish: Callable[[], None] | None) -> int:
        """Finish the erasures that were killed.

        Return the number of those of the source itself that had deleted events.
        """
        unfinished = self._list_unfinished()
        if not unfinished:
            return 0
        self.on_progress("finish an interrupted erasure")
        resumed = 0
        for log, erasure in unfinished:
            was_recomputed = recovery.recompute_windows(
                log, self.definitions, erasure, self.on_progress
            )
            if was_recomputed and log is self.log:
                resumed += 1
        self._erase_downstream(None)
        self._record_end(on_finish)
        return resumed

    def _process_new_arrivals(self) -> None:
        """Run the assets, so that none of them still has to process an event that will be erased.

        After these runs, all tables match their definitions.
        """
        for log in self.event_logs:
            for asset in find_windowed_assets(self.warehouse, log.source, self.definitions):
                self.on_progress(f"process new arrivals of {asset.name}")
                runner.incremental(self.warehouse, asset)

    def _drop_versions(self) -> None:
        """Drop the versions tables of as-of joins, which have copies of events.

        The next ingests of the joins work without these tables.
        """
        for derived_source in self.derived:
            if isinstance(derived_source, AsOfSource):
                self.warehouse.drop_table(derived_source.versions_table)

    def _erase_downstream(self, report: ErasureReport | None) -> ErasureReport | None:
        """Erase rows of derived sources that were computed from erased events.

        The windows over these rows are recomputed.

        Args:
            report: the report of this erasure; None while interrupted erasures are finished.

        Returns:
            `report` with the changes to derived sources; None if `report` is None.
        """
        # An ingest may have written these tables again, before it could see the deletion.
        self._drop_versions()
        for derived_source in self.derived:
            if not self.warehouse.has_table(derived_source.timeline_table):
                continue
            log = Log(self.warehouse, derived_source)
            # An ingest that has read erased events can't append their rows any more.
            log.take_over()
            if log.find_last_arrival() is None:
                continue
            with temp_tables(self.warehouse) as temporary:
                self.on_progress(f"search {derived_source.name}")
                search_result = search_derived_source(
                    log, derived_source, self.definitions, temporary, {}
                )
                if not search_result.is_empty:
                    if report is not None:
                        report = self._extend_report(report, log, search_result, dry_run=False)
                    self.on_progress(f"delete the events from {derived_source.name}")
                    replace_changed_rows(log, search_result, temporary)
            if not search_result.is_empty:
                recovery.recompute_windows(
                    log, self.definitions, search_result.erasure, self.on_progress
                )
            recovery.renew_results(log, derived_source)
        return report

    def _extend_report(
        self, report: ErasureReport, log: Log, search_result: SearchResult, *, dry_run: bool
    ) -> ErasureReport:
        """Return `report`, extended by the changes to a derived source.

        Args:
            log: the event log of the derived source.
            search_result: the changes to the derived source.
        """
        derived_report = build_report(
            log, self.definitions, search_result, dry_run=dry_run, resumed=0
        )
        return replace(
            report,
            places=report.places + derived_report.places,
            sent=report.sent + derived_report.sent,
            removed=list(dict.fromkeys(report.removed + derived_report.removed)),
        )

    def _list_unfinished(self) -> list[tuple[Log, Erasure]]:
        unfinished = list[tuple[Log, Erasure]]()
        for log in self.event_logs:
            for erasure in erasures.find_unfinished(self.warehouse, log.source):
                unfinished.append((log, erasure))
        return unfinished

    def _record_end(self, on_finish: Callable[[], None] | None) -> None:
        """Record the erasures as finished: those of derived sources, then that of the source.

        The erasure of the source includes the derived sources, so it is never finished before them.
        """
        if on_finish is not None:
            on_finish()
        for _, erasure in reversed(self._list_unfinished()):
            erasures.record_phase(self.warehouse, erasure, ENDED)


def _check_definitions(
    warehouse: Warehouse,
    source: Source,
    definitions: Sequence[Definition],
    derived: Sequence[DerivedSource],
) -> None:
    """Refuse an erasure if rows were computed from the source by a definition that is not loaded.

    Such rows can't be computed again without the erased events.
    """
    owner = source.log_table.owner
    loaded = {derived_source.log_table.owner for derived_source in derived}
    loaded |= {definition.published_table.owner for definition in definitions}
    graph = Graph(own_tables(warehouse))
    unknown = [node for node in graph.nodes_below(owner) if node.owner not in loaded]
    if not unknown:
        return
    described = ", ".join(f"'{node.name}' ({', '.join(node.tables)})" for node in unknown)
    verb = "was" if len(unknown) == 1 else "were"
    drops = ", then ".join(f"`tidemark drop {node.name}`" for node in reversed(unknown))
    raise DataError(
        f"Nothing was erased: {described} {verb} computed from events of '{source.name}', but no "
        "loaded domain defines that, so the rows can't be computed again. Repeat the command in "
        f"the project that defines it, or delete its tables: {drops}."
    )


def _check_current(
    warehouse: Warehouse, definitions: Sequence[Definition], derived: Sequence[DerivedSource]
) -> None:
    """Refuse an erasure if a source or an asset can't be computed again after the events' deletion.

    Raises:
        StaleError: one of them is stale.
        DefinitionError: an asset's late table can't take the columns of its definition.
    """
    lineage = Lineage(WarehouseReader(warehouse))
    stale_outputs = [lineage.of_source(derived_source) for derived_source in derived]
    stale_outputs += [lineage.of_asset(definition) for definition in definitions]
    for stale in stale_outputs:
        if stale is not None:
            raise StaleError(stale)
    for definition in definitions:
        asset = Asset(warehouse, definition)
        last = asset.state.read_last_commit()
        if last.commit_number >= 0:
            takeover.check_definition(asset, last, pinned_definition=False)
