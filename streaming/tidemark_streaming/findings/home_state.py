"""The state of a home, read from its tables, files and locks, and from Kafka, without the engine.

Everything that shows the home reads this state: `tidemark status`, the live page, the metrics and
Dagster's checks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tables import CHECKS, LEDGER, OPERATIONS
from tidemark.store.integrity import table_check
from tidemark.store.integrity.damage import Damage
from tidemark.store.lineage import Stale
from tidemark.store.operations import Operation, select_unfinished
from tidemark_streaming.base.extra import PipelineOverview, find_extras
from tidemark_streaming.findings.polls import Answers, Backlog, Backlogs, SinkOverview, Sinks
from tidemark_streaming.findings.reads import Reads
from tidemark_streaming.findings.services import ServiceMonitor, Services
from tidemark_streaming.home import domains
from tidemark_streaming.home.domains import AvailableDomains
from tidemark_streaming.ingest import future_watermark
from tidemark_streaming.ingest.future_watermark import FutureWatermark
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.snapshot.check_results import IntegrityFault, find_integrity_fault
from tidemark_streaming.snapshot.held_back import BaseProgress, HeldBack, find_slow_base
from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.snapshot.staleness import find_stale_asset, find_stale_source
from tidemark_streaming.snapshot.windows import QuarantineCounts, count_quarantined

BROKERS_SECONDS = 2.0
"""Seconds within which brokers must answer a command that reads the state once."""

_DAMAGE_SECONDS = 60.0
"""Seconds between two checks whether the tables belong together."""

_FIRST_CHECK_SECONDS = 600.0
"""Maximum number of seconds to wait for the first of these checks."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class SourceState:
    """The progress of a source, and the facts from which its findings follow.

    Args:
        ahead: the watermark, if it is far ahead of the processing clock.
        held_back: for a derived source, the base that holds it back, if there is one.
        stale: why the source is stale; None if it is not.
        backlog: the lag in Kafka; None if the source does not read from Kafka.
    """

    snapshot: SourceSnapshot
    ahead: FutureWatermark | None = None
    held_back: HeldBack | None = None
    stale: Stale | None = None
    backlog: Backlog | None = None


@dataclass(frozen=True)
class AssetState:
    """The progress of an asset, and the facts from which its findings follow.

    Args:
        fault: windows in which Tidemark lost or duplicated events, if there are any.
        stale: why the asset is stale; None if it is not.
    """

    snapshot: AssetSnapshot
    quarantine: QuarantineCounts = field(default_factory=QuarantineCounts)
    fault: IntegrityFault | None = None
    stale: Stale | None = None


@dataclass(frozen=True)
class HomeState:
    """Everything from which the findings of a home follow, read at one instant.

    Args:
        at: the instant, in microseconds.
        definition_errors: the errors of modules that can't be loaded, by module.
        pipelines: the progress of pipelines, by the name of their extra.
        damages: the tables that lack a commit or a file.
        operations: the unfinished operations, the oldest first.
        troubles: the error messages of failed reads, by the name of the source, asset or topic,
            or by `STORE`.
    """

    at: int
    services: Services
    sources: Mapping[str, SourceState] = field(default_factory=dict[str, SourceState])
    assets: Mapping[str, AssetState] = field(default_factory=dict[str, AssetState])
    sinks: Sequence[SinkOverview] = ()
    pipelines: Mapping[str, Sequence[PipelineOverview]] = field(
        default_factory=dict[str, Sequence[PipelineOverview]]
    )
    definition_errors: Mapping[str, str] = field(default_factory=dict[str, str])
    damages: Sequence[Damage] = ()
    operations: Sequence[Operation] = ()
    troubles: Mapping[str, str] = field(default_factory=dict[str, str])


class HomeReader:
    """Reads the state of a home, repeatedly if it is kept, in one thread.

    Args:
        available: the definitions to read; by default, those of the settings' domains that can be
            loaded.
        rest: see `Tables`.
        wait_seconds: seconds within which brokers must answer; the first call of `read` then waits
            for them, and for the check whether the tables belong together. If it is zero, the
            results of these polls are missing until they are there.
    """

    def __init__(
        self,
        settings: Settings,
        available: AvailableDomains | None = None,
        *,
        rest: float = 0.0,
        wait_seconds: float = 0.0,
    ) -> None:
        loaded = available or domains.load_available(settings.domains)
        self.domains = loaded.domains
        self.definition_errors = loaded.errors
        self.sources: Mapping[str, Source] = {s.name: s for s in self.domains.all_sources()}
        self.recordings = set[str]()
        self._connectors = dict[str, KafkaConnector]()
        for name, ingestion in self.domains.ingestions.items():
            if ingestion.play is not None:
                self.recordings.add(name)
            connector = ingestion.connector(settings.landing_of(name))
            if isinstance(connector, KafkaConnector):
                self._connectors[name] = connector
        self._settings = settings
        self._wait_seconds = wait_seconds
        assets = self.domains.transforms.values()
        self.snapshot = Snapshot(settings, assets, self.recordings, rest)
        self._services = ServiceMonitor(settings, self.sources)
        self._sinks = Sinks(settings, assets, wait_seconds)
        self._pipelines = dict[str, Callable[[], Sequence[PipelineOverview]]]()
        for extra in find_extras():
            self._pipelines[extra.name] = extra.create_monitor(settings, self.domains.pipelines)
        self.backlogs = Backlogs()
        self._damages = Answers[list[Damage]](_DAMAGE_SECONDS)

    def read(self) -> HomeState:
        """Return the current state."""
        with self.snapshot.tables.pin_all_versions():
            return self._read_pinned()

    def _read_pinned(self) -> HomeState:
        reads = Reads({})
        # The brokers are asked first, and answer while the tables are read.
        sinks = reads.attempt("topics", self._sinks.list_overviews)
        sources = dict[str, SourceState]()
        for name, source in self.sources.items():
            source_state = reads.attempt(name, partial(self._read_source, source))
            if source_state is not None:
                sources[name] = source_state
        assets = dict[str, AssetState]()
        for name, definition in self.domains.transforms.items():
            asset_state = reads.attempt(name, partial(self._read_asset, definition))
            if asset_state is not None:
                assets[name] = asset_state
        pipelines = dict[str, Sequence[PipelineOverview]]()
        for name, read in self._pipelines.items():
            pipelines[name] = reads.attempt(name, read) or ()
        return HomeState(
            at=time.time_ns() // 1000,
            services=self._services.read(reads),
            sources=sources,
            assets=assets,
            sinks=sinks or (),
            pipelines=pipelines,
            definition_errors=self.definition_errors,
            damages=reads.attempt("tables", self._find_damages) or (),
            operations=reads.attempt(OPERATIONS, self._find_operations) or (),
            troubles=reads.troubles,
        )

    def _read_source(self, source: Source) -> SourceState:
        snapshot = self.snapshot.read_source(source)
        connector = self._connectors.get(source.name)
        position = self.snapshot.arrivals_of(source.name).position
        return SourceState(
            snapshot=snapshot,
            ahead=self._find_ahead(source, snapshot),
            held_back=self._find_slow_base(source, snapshot),
            stale=find_stale_source(self.snapshot.tables, source),
            backlog=None if connector is None else self.backlogs.get_backlog(connector, position),
        )

    def _find_ahead(self, source: Source, snapshot: SourceSnapshot) -> FutureWatermark | None:
        clock = snapshot.clock
        if clock is None or not future_watermark.is_far_ahead(snapshot.watermark, clock):
            return None
        return future_watermark.find_future_watermark(self.snapshot, source)

    def _find_slow_base(self, source: Source, snapshot: SourceSnapshot) -> HeldBack | None:
        if not isinstance(source, DerivedSource):
            return None
        progress = dict[str, BaseProgress]()
        for base in source.base_sources:
            timeline = self.snapshot.arrivals_of(base.name)
            progress[base.name] = BaseProgress(timeline.watermark, timeline.newest_event)
        return find_slow_base(source, snapshot.watermark, progress)

    def _read_asset(self, definition: Definition) -> AssetState:
        tables = self.snapshot.tables
        evidence = [
            CHECKS,
            LEDGER,
            definition.quarantine_table,
            definition.published_table,
            definition.state_table,
        ]
        return AssetState(
            snapshot=self.snapshot.read_asset(definition),
            quarantine=count_quarantined(tables, definition),
            fault=tables.read_if_changed(
                (definition.name, "integrity fault"),
                evidence,
                lambda: find_integrity_fault(self.snapshot, definition),
            ),
            stale=find_stale_asset(tables, definition),
        )

    def _find_damages(self) -> Sequence[Damage]:
        """Return the damage to the tables, from a check in the background."""
        patience = _FIRST_CHECK_SECONDS if self._wait_seconds else 0.0
        return self._damages.get_newest("tables", self._check_tables, patience) or ()

    def _check_tables(self) -> list[Damage]:
        folder = f"{self._settings.warehouse}/{self._settings.database}"
        return table_check.find_damage(
            folder, self.sources.values(), self.domains.transforms.values()
        )

    def _find_operations(self) -> list[Operation]:
        return self.snapshot.tables.read_if_changed(
            (OPERATIONS, "unfinished"), [OPERATIONS], self._read_operations
        )

    def _read_operations(self) -> list[Operation]:
        rows = self.snapshot.tables.read(OPERATIONS)
        if rows is None:
            return []
        return select_unfinished(rows)
