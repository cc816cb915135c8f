"""An overview of a home: the progress of each source and asset, and the state of its processes."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow.dataset as ds

from tidemark.base.instants import INFINITY
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.quality import results
from tidemark.quality.quarantine import QUARANTINED
from tidemark.store import ledger
from tidemark.store.rows import to_display, to_micros
from tidemark_streaming.base.extra import PipelineOverview
from tidemark_streaming.findings.finding import Finding
from tidemark_streaming.findings.home_state import AssetState, HomeReader, SourceState
from tidemark_streaming.findings.listing import list_findings
from tidemark_streaming.findings.polls import Backlog, SinkOverview
from tidemark_streaming.findings.reads import Reads
from tidemark_streaming.findings.services import Services
from tidemark_streaming.home.domains import AvailableDomains
from tidemark_streaming.snapshot import tables
from tidemark_streaming.snapshot.history import Runs, lag_seconds
from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
from tidemark_streaming.snapshot.tables import Listing, Tables, arrow_instant
from tidemark_streaming.snapshot.windows import count_open, read_published

_SHOWN = 5
"""Maximum number of quarantined windows to list per asset, the newest ones."""


@dataclass(frozen=True)
class SourceOverview:
    """The progress of a source, as the metrics and the live page show it.

    Instants are in microseconds.

    Args:
        played: true if the source is a recording.
        clock: the instant against which the lag is measured: the newest event of a recording, or
            the time of the overview.
        bytes: the number of bytes that were read.
        dead_letters: all rows of the dead letter table, including reprocessed ones; 0 for a derived
            source.
        backlog: the lag in Kafka; None if the source does not read from Kafka.
        waited: pairs of an instant and the total lag in Kafka at that instant, in order.
    """

    snapshot: SourceSnapshot
    played: bool
    clock: int
    bytes: int
    dead_letters: int
    backlog: Backlog | None
    waited: Sequence[tuple[int, int]] = ()

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.snapshot.name

    @property
    def seconds_ahead(self) -> float | None:
        """The seconds by which the watermark is ahead of the processing clock; 0 if it is behind.

        None before the first event, and after the end of the source.
        """
        watermark = self.snapshot.watermark
        clock = self.snapshot.clock
        if watermark is None or clock is None or watermark >= INFINITY:
            return None
        return max(0, watermark - clock) / 1e6

    @property
    def watermark_lag(self) -> float | None:
        """The lag of the watermark, in seconds; None before the first watermark, and after the end
        of the source."""
        return lag_seconds(self.clock, self.snapshot.watermark)


@dataclass(frozen=True)
class _Windows:
    """The numbers of rows in one bar of the chart of an asset's windows.

    Args:
        end: the end of the bar, in microseconds (`_Span.bar`).
        final: published rows that can't change any more.
        ended: published rows that late events may still change.
        open: rows of windows whose end the watermark has not passed.
        quarantined: rows that are not published because they failed an expectation.
    """

    end: int
    final: int = 0
    ended: int = 0
    open: int = 0
    quarantined: int = 0


@dataclass(frozen=True)
class _Span:
    """The range of event time in which an asset's windows are drawn, around its watermark.

    Args:
        start, end: microseconds. Windows with an end in (start, end] are drawn.
        step: the distance between two bars, in microseconds. It equals the distance between two
            window ends. If windows can end at any instant, all windows that end within one step
            share a bar.
        together: true if windows with different ends share a bar.
    """

    start: int
    end: int
    step: int
    together: bool

    BEFORE: ClassVar[int] = 36
    AFTER: ClassVar[int] = 12

    @classmethod
    def for_watermark(cls, definition: Definition, watermark: int | None) -> "_Span":
        """Return the range in which the windows of an asset with this watermark are drawn."""
        period = definition.window.closing_every
        gap = definition.window.merge_gap
        step = max(period or gap, 1_000_000)
        end = 0
        if watermark is not None and watermark < INFINITY:
            end = watermark
        return cls(end - cls.BEFORE * step, end + cls.AFTER * step, step, period is None)

    def bar_of(self, end: int) -> int:
        """Return the instant at which the chart draws the bar of windows with the given end."""
        if self.together:
            return -(-end // self.step) * self.step
        return end

    def count_by_bar(self, ends: Mapping[int, int]) -> Counter[int]:
        """Return the numbers of rows by bar, from the numbers of rows by window end."""
        by_bar = Counter[int]()
        for end, count in ends.items():
            if self.start < end <= self.end:
                by_bar[self.bar_of(end)] += count
        return by_bar


@dataclass(frozen=True)
class _QuarantinedWindow:
    """A quarantined window: its start (microseconds), its keys, and the failed expectations."""

    start: int
    keys: str
    why: str


@dataclass(frozen=True)
class AssetOverview:
    """The progress of an asset, as the metrics and the live page show it.

    Args:
        quarantined_count, discarded: the number of rows in quarantine, and the number of rows that
            were discarded manually.
        windows: the bars of the windows in `span`, in order.
        quarantined: the newest quarantined windows.
    """

    definition: Definition
    source: SourceOverview
    snapshot: AssetSnapshot
    runs: Runs
    quarantined_count: int
    discarded: int
    span: _Span
    windows: tuple[_Windows, ...]
    quarantined: tuple[_QuarantinedWindow, ...]

    @property
    def name(self) -> str:
        """The name of the asset."""
        return self.definition.name

    @property
    def watermark_lag(self) -> float | None:
        """The lag of the asset's watermark behind the source's clock, in seconds; None before the
        first watermark, and after the end of the source."""
        return lag_seconds(self.source.clock, self.snapshot.watermark)


@dataclass(frozen=True)
class Overview:
    """Everything that the metrics and the live page show, from one reading of a home.

    Args:
        at: the instant of the reading, in microseconds.
        sources, assets, sinks: the progress of each of them. Those that could not be read are
            missing.
        pipelines: the progress of pipelines, by the name of their extra.
        services: the state of the home's processes and commands.
        tables: the sizes of the existing tables, by name.
        findings: what needs a person's attention, errors first.
        troubles: error messages of failed reads, by the name of the source, asset or table.
        seconds: the duration of reading this overview.
    """

    at: int
    sources: tuple[SourceOverview, ...]
    assets: tuple[AssetOverview, ...]
    sinks: tuple[SinkOverview, ...]
    pipelines: Mapping[str, Sequence[PipelineOverview]]
    services: Services
    tables: Mapping[str, Listing]
    findings: tuple[Finding, ...]
    troubles: Mapping[str, str]
    seconds: float


class Monitor:
    """Reads the overview of a home repeatedly, in one thread."""

    def __init__(self, settings: Settings, available: AvailableDomains | None = None) -> None:
        self._reader = HomeReader(settings, available, rest=tables.PAUSE_FACTOR)
        self._snapshot = self._reader.snapshot
        self._tables = self._snapshot.tables
        self._transforms = self._reader.domains.transforms

    def read(self) -> Overview:
        """Return the current overview."""
        begun = time.monotonic()
        state = self._reader.read()
        reads = Reads(state.troubles)
        sources = dict[str, SourceOverview]()
        for name, source in state.sources.items():
            describe = partial(self._describe_source, name, source, state.at)
            if overview := reads.attempt(name, describe):
                sources[name] = overview
        assets = list[AssetOverview]()
        for name, asset in state.assets.items():
            source_overview = sources.get(asset.snapshot.source)
            if source_overview is None:
                continue
            describe = partial(self._describe_asset, self._transforms[name], asset, source_overview)
            if overview := reads.attempt(name, describe):
                assets.append(overview)
        sizes = dict[str, Listing]()
        for name in self._list_table_names():
            size = reads.attempt(name, partial(self._tables.read_listing, name))
            if size is not None:
                sizes[name] = size
        return Overview(
            at=state.at,
            sources=tuple(sources.values()),
            assets=tuple(assets),
            sinks=tuple(state.sinks),
            pipelines=state.pipelines,
            services=state.services,
            tables=sizes,
            findings=list_findings(state),
            troubles=reads.troubles,
            seconds=time.monotonic() - begun,
        )

    def _list_table_names(self) -> list[str]:
        names = [ledger.TABLE, results.TABLE]
        for source in self._reader.sources.values():
            names += [source.log_table, source.timeline_table, source.dead_letters_table]
        for transform in self._transforms.values():
            names += transform.own_tables
        return list(dict.fromkeys(names))

    def _describe_source(self, name: str, state: SourceState, time_micros: int) -> SourceOverview:
        source = self._reader.sources[name]
        timeline = self._snapshot.arrivals_of(name)
        played = name in self._reader.recordings
        newest_event = state.snapshot.newest_event
        clock = time_micros
        if played and newest_event is not None:
            clock = newest_event
        # Rows that a derived source omits are not dead letters of it.
        dead_letters = 0
        listing = self._tables.read_listing(source.dead_letters_table)
        if listing is not None and not isinstance(source, DerivedSource):
            dead_letters = listing.rows
        past_lags = list[tuple[int, int]]()
        if state.backlog is not None:
            past_lags = self._reader.backlogs.list_past_lags(name)
        return SourceOverview(
            snapshot=state.snapshot,
            played=played,
            clock=clock,
            bytes=timeline.bytes,
            dead_letters=dead_letters,
            backlog=state.backlog,
            waited=past_lags,
        )

    def _describe_asset(
        self, definition: Definition, state: AssetState, source: SourceOverview
    ) -> AssetOverview:
        tables = self._tables
        snapshot = state.snapshot
        span = _Span.for_watermark(definition, snapshot.watermark)
        final, changing = tables.read_if_changed(
            (definition.name, "bars"),
            [definition.published_table],
            partial(_count_published, tables, definition, span, snapshot.watermark),
            dependency=snapshot.watermark,
        )
        quarantined_windows, newest = tables.read_if_changed(
            (definition.name, "quarantine"),
            [definition.quarantine_table],
            partial(_read_quarantine, tables, definition),
        )
        open_ = span.count_by_bar(count_open(tables, definition, snapshot.watermark))
        quarantined = span.count_by_bar(quarantined_windows)
        windows = list[_Windows]()
        for end in sorted(set(final).union(changing, open_, quarantined)):
            windows.append(_Windows(end, final[end], changing[end], open_[end], quarantined[end]))
        return AssetOverview(
            definition=definition,
            source=source,
            snapshot=snapshot,
            runs=self._snapshot.runs_of(definition),
            quarantined_count=state.quarantine.quarantined,
            discarded=state.quarantine.discarded,
            span=span,
            windows=tuple(windows),
            quarantined=newest,
        )


def _count_published(
    tables: Tables, definition: Definition, span: _Span, watermark: int | None
) -> tuple[Counter[int], Counter[int]]:
    """Return two numbers of published rows for each bar: final rows, and rows that late events may
    still change. Only closed windows count."""
    final = Counter[int]()
    changing = Counter[int]()
    rows = read_published(tables, definition)
    if rows is None or watermark is None:
        return final, changing
    ends = ds.field("window_end")
    last = min(span.end, watermark)
    near = rows.filter((ends > arrow_instant(span.start)) & (ends <= arrow_instant(last)))
    counted = near.group_by(["window_end", "final"]).aggregate([([], "count_all")])
    columns = to_micros(counted["window_end"]), counted["final"], counted["count_all"]
    for end, is_final, count in zip(*columns, strict=True):
        counts = final if is_final.as_py() else changing
        counts[span.bar_of(end)] += count.as_py()
    return final, changing


def _describe_key(value: object) -> str:
    if value is None:
        return "null"
    return str(value)


def _read_quarantine(
    tables: Tables, definition: Definition
) -> tuple[Counter[int], tuple[_QuarantinedWindow, ...]]:
    """Return the numbers of quarantined rows by window end, and the newest quarantined windows."""
    windows = tables.existing_columns(definition.quarantine_table, definition.by_window)
    columns = [*windows, "failed_expectations", "quarantine_status"]
    rows = tables.read(definition.quarantine_table, columns)
    if rows is None:
        return Counter(), ()
    quarantined_rows = rows.filter(ds.field("quarantine_status") == QUARANTINED).sort_by(
        [("window_start", "descending")]
    )
    starts = to_micros(quarantined_rows["window_start"][:_SHOWN])
    shown_rows = to_display(quarantined_rows.slice(0, _SHOWN))
    newest = list[_QuarantinedWindow]()
    for start, row in zip(starts, shown_rows, strict=True):
        keys = [_describe_key(row.get(key)) for key in definition.keys]
        failures = [f"{f['expectation']}: {f['observed']}" for f in row["failed_expectations"]]
        newest.append(_QuarantinedWindow(start, ", ".join(keys), "; ".join(failures)))
    return Counter(to_micros(quarantined_rows["window_end"])), tuple(newest)
