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
from tidemark.run.erase.deletion import delete, rewrite
from tidemark.run.erase.report import ErasureReport, build_report
from tidemark.run.erase.search import (
    SearchResult,
    check_continuing,
    find_counted,
    search,
    search_derived_source,
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


def erase(
    warehouse: Warehouse,
    source: Source,
    definitions: Sequence[Definition],
    where: str,
    texts: Sequence[str] = (),
    *,
    derived: Sequence[DerivedSource] = (),
    dry_run: bool = False,
    then: Callable[[], None] | None = None,
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
        then: called before the erasure is recorded as finished; may be called twice.
    """
    log = Log(warehouse, source)
    if not warehouse.exists(source.timeline_table) or (last := log.last()) is None:
        raise DataError(f"Source '{source.name}' has no arrivals yet: there is nothing to erase.")
    _check_definitions(warehouse, source, definitions, derived)
    _check_current(warehouse, definitions, derived)
    # Check the condition before other runs have to wait.
    affected_by_erasure.find_events(log, last.arrival, where)
    work = _Work(log, derived, definitions, on_progress)
    for each in work.list_filled():
        check_continuing(Log(warehouse, each), each)
    if dry_run:
        return work.plan(where, texts)
    operations.check_unfinished(warehouse, [each.log_table.owner for each in derived])
    with ExitStack() as held:
        for each in (source, *derived):
            held.enter_context(hold_rewrite(warehouse, each, on_progress))
        # Another project may have computed its first rows while the erasure waited.
        _check_definitions(warehouse, source, definitions, derived)
        return work.erase(where, texts, then)


def list_tables(source: Source, definitions: Sequence[Definition]) -> list[str]:
    """Return the tables that may hold data of a source's events."""
    own = [t for d in definitions if d.source.name == source.name for t in d.tables]
    return [source.log_table, source.dead_letters_table, *dict.fromkeys(own), results.TABLE]


@dataclass(frozen=True)
class _Work:
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
    def logs(self) -> list[Log]:
        return [self.log, *(Log(self.warehouse, each) for each in self.list_filled())]

    def list_filled(self) -> list[DerivedSource]:
        """Return the derived sources that have arrivals now."""
        existing = [d for d in self.derived if self.warehouse.exists(d.timeline_table)]
        return [each for each in existing if Log(self.warehouse, each).last() is not None]

    def plan(self, where: str, texts: Sequence[str]) -> ErasureReport:
        """Return the report of a dry run, with the changes that an erasure would make."""
        with temp_tables(self.warehouse) as place:
            found = search(self.log, self.definitions, where, texts, place, self._last_arrival())
            report = build_report(self.log, self.definitions, found, dry_run=True, resumed=0)
            planned = {self.log.source.name: (self.log, found)}
            for each in self.list_filled() if found.erasure.events else ():
                log = Log(self.warehouse, each)
                found = search_derived_source(log, each, self.definitions, place, planned)
                planned[each.name] = log, found
                report = self._include(report, log, found, dry_run=True)
        return report

    def erase(
        self, where: str, texts: Sequence[str], then: Callable[[], None] | None
    ) -> ErasureReport:
        """Finish interrupted erasures, and erase the events that match a condition."""
        warehouse, resumed = self.warehouse, 0
        for log in self.logs:
            log.recover()
        # Later arrivals are not searched: no ingest may have their rows in memory any more.
        through = self._last_arrival()
        if left := self._list_unfinished():
            self.on_progress("finish an interrupted erasure")
            for log, erasure in left:
                done = recovery.recompute(log, self.definitions, erasure, self.on_progress)
                resumed += done and log is self.log
            self._continue(None)
            self._end(then)
        for log in self.logs:
            for asset in find_counted(warehouse, log.source, self.definitions):
                # After these runs, no asset still has to process an event that will be erased, and
                # all tables match their definitions.
                self.on_progress(f"process new arrivals of {asset.name}")
                runner.incremental(warehouse, asset)
        with temp_tables(warehouse) as place:
            self.on_progress("search for the events")
            found = search(self.log, self.definitions, where, texts, place, through)
            report = build_report(self.log, self.definitions, found, dry_run=False, resumed=resumed)
            if not found.is_empty:
                self.on_progress("delete the events from the event log")
                operations.begin(warehouse, Kind.ERASE, self._owner)
                self._drop_versions()
                delete(self.log, found, place)
        if not found.is_empty:
            recovery.recompute(self.log, self.definitions, found.erasure, self.on_progress)
            report = self._continue(report) or report
            self._end(then)
        operations.end(warehouse, Kind.ERASE, self._owner)
        # Sweep last: the engine may continue for a moment with queries of a killed process.
        swept = claims.sweep(warehouse.path(SCRATCH))
        return replace(report, swept=swept.removed, unswept=swept.left)

    def _last_arrival(self) -> int:
        last = self.log.last()
        return -1 if last is None else last.arrival

    def _drop_versions(self) -> None:
        """Drop the versions tables of as-of joins, which have copies of events.

        The next ingests of the joins work without these tables.
        """
        for each in self.derived:
            if isinstance(each, AsOfSource):
                self.warehouse.drop(each.versions_table)

    def _continue(self, report: ErasureReport | None) -> ErasureReport | None:
        """Erase rows of derived sources that were computed from erased events.

        The windows over these rows are recomputed.

        Args:
            report: the report of this erasure; None while interrupted erasures are finished.

        Returns:
            `report` with the changes to derived sources; None if `report` is None.
        """
        # An ingest may have written these tables again, before it could see the deletion.
        self._drop_versions()
        for each in self.derived:
            if not self.warehouse.exists(each.timeline_table):
                continue
            log = Log(self.warehouse, each)
            # An ingest that has read erased events can't append their rows any more.
            log.recover()
            if log.last() is None:
                continue
            with temp_tables(self.warehouse) as place:
                self.on_progress(f"search {each.name}")
                found = search_derived_source(log, each, self.definitions, place, {})
                if not found.is_empty:
                    if report is not None:
                        report = self._include(report, log, found, dry_run=False)
                    self.on_progress(f"delete the events from {each.name}")
                    rewrite(log, found, place)
            if not found.is_empty:
                recovery.recompute(log, self.definitions, found.erasure, self.on_progress)
            recovery.renew_results(log, each)
        return report

    def _include(
        self, report: ErasureReport, log: Log, found: SearchResult, *, dry_run: bool
    ) -> ErasureReport:
        """Return `report`, extended by the changes to a derived source.

        Args:
            log: the event log of the derived source.
            found: the changes to the derived source.
        """
        own = build_report(log, self.definitions, found, dry_run=dry_run, resumed=0)
        return replace(
            report,
            places=[*report.places, *own.places],
            sent=[*report.sent, *own.sent],
            removed=list(dict.fromkeys([*report.removed, *own.removed])),
        )

    def _list_unfinished(self) -> list[tuple[Log, Erasure]]:
        return [
            (log, erasure)
            for log in self.logs
            for erasure in erasures.find_unfinished(self.warehouse, log.source)
        ]

    def _end(self, then: Callable[[], None] | None) -> None:
        """Record the erasures as finished: those of derived sources, then that of the source.

        The erasure of the source includes the derived sources, so it is never finished before them.
        """
        if then is not None:
            then()
        for _, erasure in reversed(self._list_unfinished()):
            erasures.record(self.warehouse, erasure, ENDED)


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
    loaded = {each.log_table.owner for each in derived}
    loaded |= {definition.table.owner for definition in definitions}
    graph = Graph(own_tables(warehouse))
    unknown = [node for node in graph.below(owner) if node.owner not in loaded]
    if not unknown:
        return
    described = ", ".join(f"'{node.name}' ({', '.join(node.tables)})" for node in unknown)
    drops = ", then ".join(f"`tidemark drop {node.name}`" for node in reversed(unknown))
    raise DataError(
        f"Nothing was erased: {described} {'was' if len(unknown) == 1 else 'were'} computed from "
        f"events of '{source.name}', but no loaded domain defines that, so the rows can't be "
        "computed again. Repeat the command in the project that defines it, or delete its tables: "
        f"{drops}."
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
    found = [lineage.of_source(each) for each in derived]
    found += [lineage.of_asset(each) for each in definitions]
    for stale in found:
        if stale is not None:
            raise StaleError(stale)
    for definition in definitions:
        asset = Asset(warehouse, definition)
        last = asset.state.last()
        if last.commit_number >= 0:
            takeover.check_definition(asset, last, pinned_definition=False)
