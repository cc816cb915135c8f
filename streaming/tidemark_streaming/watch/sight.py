"""What is seen of a home: how far each source and asset is, and what runs."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from tidemark.base.errors import TidemarkError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.quality import results
from tidemark.quality.quarantine import HELD
from tidemark.store import ledger
from tidemark.store.rows import to_micros
from tidemark_streaming import domains
from tidemark_streaming.future_watermark import find, is_far_ahead
from tidemark_streaming.glance import Glance
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.watch.backlogs import Backlog, Backlogs
from tidemark_streaming.watch.history import Arrivals, Ledger, Runs, lag
from tidemark_streaming.watch.services import Look, Services
from tidemark_streaming.watch.tables import Listing, Tables, instant, total
from tidemark_streaming.watch.ways_out import LaneSight, OutletSight, WaysOut

SHOWN = 5
"""Withheld windows of an asset that are told one by one, the newest."""

T = TypeVar("T")


@dataclass(frozen=True)
class SourceSight:
    """How far a source is. Instants are microseconds.

    Args:
        played: whether it is a recording: its clock is its newest event, and not the wall's.
        clock: what the watermark is measured against.
        dead_letters: rows of their table, those too that have come back; None where there is none.
        backlog: what waits in Kafka; None of a source of files.
        waited: how many records waited in all, and when, in order.
        undeclared: how many fields came that are no columns of the source.
        warning: a sentence if the watermark is far ahead of the processing clock.
    """

    name: str
    played: bool
    arrivals: Arrivals
    clock: int
    dead_letters: int | None
    backlog: Backlog | None
    waited: Sequence[tuple[int, int]] = ()
    undeclared: int = 0
    warning: str | None = None

    @property
    def ahead(self) -> float | None:
        """How far the watermark is ahead of the processing clock, in seconds."""
        watermark, clock = self.arrivals.watermark, self.arrivals.clock
        if watermark is None or clock is None or watermark >= INFINITY:
            return None
        return max(0, watermark - clock) / 1e6

    @property
    def lag(self) -> float | None:
        """How far the watermark is behind, in seconds."""
        return lag(self.clock, self.arrivals.watermark)


@dataclass(frozen=True)
class Windows:
    """The windows of an asset that end at one instant: rows, one for each keys.

    Args:
        end: microseconds.
        final: published, and nothing changes them any more.
        ended: published; late events may still change them.
        open: the watermark has not passed their end.
        withheld: not published, as they failed an expectation.
    """

    end: int
    final: int = 0
    ended: int = 0
    open: int = 0
    withheld: int = 0


@dataclass(frozen=True)
class Span:
    """The span of event time in which an asset's windows are drawn, around its watermark.

    Args:
        start, end: microseconds: the ends of windows in (start, end].
        step: from one bar to the next: how far windows are apart, or, where they begin at any
            instant, so much that those of a bar are told together.
        together: whether they are.
    """

    start: int
    end: int
    step: int
    together: bool

    BEFORE: ClassVar[int] = 36
    AFTER: ClassVar[int] = 12

    @classmethod
    def of(cls, transform: Definition, watermark: int | None) -> "Span":
        """The span of an asset."""
        period, gap = transform.window.closing_every, transform.window.merge_gap
        step = max(period or gap, 1_000_000)
        at = 0 if watermark is None or watermark >= INFINITY else watermark
        return cls(at - cls.BEFORE * step, at + cls.AFTER * step, step, period is None)

    def bar(self, end: int) -> int:
        """The end of the bar that has the windows of an end."""
        return -(-end // self.step) * self.step if self.together else end

    def bars(self, ends: Mapping[int, int]) -> Counter[int]:
        """How many are in each bar, of how many there are of each end."""
        found = Counter[int]()
        for end, count in ends.items():
            if self.start < end <= self.end:
                found[self.bar(end)] += count
        return found


@dataclass(frozen=True)
class Withheld:
    """A window that is withheld: where it starts (microseconds), its keys, and why."""

    start: int
    keys: str
    why: str


@dataclass(frozen=True)
class AssetSight:
    """How far an asset is.

    Args:
        behind: arrivals of its source that are not in it yet.
        rows_waiting: the events of these.
        unfollowed: whether its base has made a run that it has not followed, where it is a roll-up.
        published, final: rows of its table, and those of them that nothing changes any more.
        open: rows under way, whose windows the watermark has not passed.
        held, discarded: rows that are withheld, and those that were left out by a person.
        span: where windows are drawn.
        windows: by their ends, in order, those in the span.
        withheld: the newest of those that are held.
    """

    definition: Definition
    source: SourceSight
    runs: Runs
    behind: int
    rows_waiting: int
    unfollowed: bool
    published: int
    final: int
    open: int
    held: int
    discarded: int
    span: Span
    windows: tuple[Windows, ...]
    withheld: tuple[Withheld, ...]

    @property
    def name(self) -> str:
        """The asset's."""
        return self.definition.name

    @property
    def lag(self) -> float | None:
        """How far its watermark is behind its source's clock, in seconds."""
        return lag(self.source.clock, self.runs.watermark)


@dataclass(frozen=True)
class Sight:
    """What is seen at an instant, in microseconds.

    Args:
        outlets: topics to which assets publish; those of which something is known.
        tables: by name, how large they are.
        troubles: what could not be read, and why, by the name of its source or asset.
        seconds: what looking took.
    """

    at: int
    sources: tuple[SourceSight, ...]
    assets: tuple[AssetSight, ...]
    outlets: tuple[OutletSight, ...]
    lanes: tuple[LaneSight, ...]
    services: Services
    tables: Mapping[str, Listing]
    troubles: Mapping[str, str]
    seconds: float


class Watcher:
    """Looks at a home again and again, in one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        found = domains.load(settings.domains)
        self._inlets, self._transforms = found.inlets, found.transforms
        named = {i.source.name: i.source for i in found.inlets.values()}
        named |= {t.source.name: t.source for t in found.transforms.values()}
        self._sources = named
        self._tables = Tables(settings)
        self._glance = Glance(settings)
        self._services = Look(settings, named, found.lanes)
        self._ways_out = WaysOut(settings, found.transforms.values(), found.lanes.values())
        self._backlogs = Backlogs()
        self._arrivals = {name: Arrivals(name) for name in named}
        self._ledger = Ledger()
        self._feeds = {
            name: feed
            for name, inlet in found.inlets.items()
            if isinstance(feed := inlet.feed(settings.landing / name), KafkaConnector)
        }

    def look(self) -> Sight:
        """How everything is now."""
        begun, now, troubles = time.monotonic(), time.time_ns() // 1000, dict[str, str]()

        def attempt(name: str, look: Callable[[], T]) -> T | None:
            try:
                return look()
            except (DeltaError, OSError, pa.ArrowException, TidemarkError) as error:
                troubles[name] = next(iter(str(error).splitlines()), type(error).__name__)
                return None

        seen = {n: attempt(n, partial(self._source, n, now)) for n in self._sources}
        sources = {name: source for name, source in seen.items() if source is not None}
        attempt(ledger.TABLE, self._read_ledger)
        assets = [
            attempt(name, partial(self._asset, transform, sources[transform.source.name]))
            for name, transform in self._transforms.items()
            if transform.source.name in sources
        ]
        sized = {n: attempt(n, partial(self._tables.listing, n)) for n in self._names()}
        return Sight(
            at=now,
            sources=tuple(sources.values()),
            assets=tuple(a for a in assets if a is not None),
            outlets=attempt("topics", self._ways_out.outlets) or (),
            lanes=attempt("lanes", self._ways_out.lanes) or (),
            services=self._services.look(),
            tables={name: size for name, size in sized.items() if size is not None},
            troubles=troubles,
            seconds=time.monotonic() - begun,
        )

    def _names(self) -> list[str]:
        """The tables that there may be."""
        found = [ledger.TABLE, results.TABLE]
        for source in self._sources.values():
            found += [source.log_table, source.timeline_table, source.dead_letters_table]
        for transform in self._transforms.values():
            found += transform.tables
        return list(dict.fromkeys(found))

    def _played(self, source: str) -> bool:
        inlet = self._inlets.get(source)
        return inlet is not None and inlet.play is not None

    def _source(self, name: str, now: int) -> SourceSight:
        source, tables, arrivals = self._sources[name], self._tables, self._arrivals[name]
        arrivals.read(tables)
        clock, played = now, self._played(name)
        if played and arrivals.newest_event is not None:
            clock = arrivals.newest_event
        dead = tables.listing(source.dead_letters_table)
        feed = self._feeds.get(name)
        return SourceSight(
            name=name,
            played=played,
            arrivals=arrivals,
            clock=clock,
            dead_letters=None if dead is None else dead.rows,
            backlog=None if feed is None else self._backlogs.backlog(feed, arrivals.position),
            waited=() if feed is None else self._backlogs.past(name),
            undeclared=len(arrivals.undeclared - source.fields.keys()),
            warning=self._warning(source, arrivals),
        )

    def _warning(self, source: Source, arrivals: Arrivals) -> str | None:
        if arrivals.clock is None or not is_far_ahead(arrivals.watermark, arrivals.clock):
            return None
        found = find(self._glance, source)
        return None if found is None else str(found)

    def _read_ledger(self) -> None:
        arrivals = {t.name: self._arrivals[t.source.name] for t in self._transforms.values()}
        played = {t.name: self._played(t.source.name) for t in self._transforms.values()}
        self._ledger.read(self._tables, arrivals, played)

    def _asset(self, transform: Definition, source: SourceSight) -> AssetSight:
        tables, rolls_up = self._tables, transform.follows is not None
        state = tables.life(transform.state_table)
        runs = self._ledger.of(
            transform.name, state, tables.life(transform.table), rolls_up=rolls_up
        )
        base = self._ledger.of(transform.follows or "", state, None, rolls_up=False)
        mark = runs.watermark
        span = Span.of(transform, mark)
        rows, final_rows, recent = tables.kept(
            (transform.name, "published"),
            [transform.table],
            partial(_published, tables, transform, span),
            also=mark,
        )
        waiting = Counter[int]()
        if not rolls_up:
            waiting = tables.kept(
                (transform.name, "open"),
                [transform.state_table],
                partial(_open, tables, transform, mark),
                also=mark,
            )
        held, discarded, newest = tables.kept(
            (transform.name, "held"),
            [transform.quarantine_table],
            partial(_withheld, tables, transform),
        )
        final, ended, early = Counter[int](), Counter[int](), Counter[int]()
        for (end, is_final), count in recent.items():
            passed = mark is not None and end <= mark
            (final if is_final else ended if passed else early)[span.bar(end)] += count
        # What fired early is in the state as well.
        open_rows = rows - final_rows - ended.total() if rolls_up else waiting.total()
        under_way = early if rolls_up else span.bars(waiting)
        withheld = span.bars(held)
        ends = sorted({*final, *ended, *under_way, *withheld})
        return AssetSight(
            definition=transform,
            source=source,
            runs=runs,
            behind=max(0, source.arrivals.count - 1 - runs.as_of),
            rows_waiting=source.arrivals.brought(runs.as_of, source.arrivals.count - 1),
            unfollowed=base.seq > runs.seq,
            published=rows,
            final=final_rows,
            open=open_rows,
            held=held.total(),
            discarded=discarded,
            span=span,
            windows=tuple(Windows(e, final[e], ended[e], under_way[e], withheld[e]) for e in ends),
            withheld=newest,
        )


def _published(
    tables: Tables, transform: Definition, span: Span
) -> tuple[int, int, Counter[tuple[int, bool]]]:
    """How many rows are published and how many of them are final; and of the windows in a span,
    by their ends and whether they are final."""
    rows = tables.read(transform.table, ["window_end", "final"])
    if rows is None:
        return 0, 0, Counter()
    ends = ds.field("window_end")
    near = rows.filter((ends > instant(span.start)) & (ends <= instant(span.end)))
    counted = near.group_by(["window_end", "final"]).aggregate([([], "count_all")])
    places = zip(to_micros(counted["window_end"]), counted["final"].to_pylist(), strict=True)
    recent = Counter(dict(zip(places, counted["count_all"].to_pylist(), strict=True)))
    return rows.num_rows, total(rows["final"]), recent


def _open(tables: Tables, transform: Definition, mark: int | None) -> Counter[int]:
    """How many rows are under way in windows that end after a watermark, by that end."""
    by, least = [*transform.by_window], BEGINNING if mark is None else mark
    rows = tables.read(transform.state_table, [*by, "admitted"], above=("window_end", least))
    if rows is None or least >= INFINITY:
        return Counter()
    rows = rows.filter(rows["admitted"]).group_by(by).aggregate([])
    return Counter(to_micros(rows["window_end"]))


def _withheld(
    tables: Tables, transform: Definition
) -> tuple[Counter[int], int, tuple[Withheld, ...]]:
    """Rows that are held, by the end of their windows; how many were discarded; the newest held."""
    columns = [*transform.by_window, "failed", "status"]
    rows = tables.read(transform.quarantine_table, columns)
    if rows is None:
        return Counter(), 0, ()
    held = rows.filter(ds.field("status") == HELD).sort_by([("window_start", "descending")])
    newest = [
        Withheld(
            start=start,
            keys=", ".join(str(row[key]) for key in transform.keys),
            why="; ".join(f"{f['expectation']}: {f['observed']}" for f in row["failed"]),
        )
        for start, row in zip(
            to_micros(held["window_start"][:SHOWN]), held.slice(0, SHOWN).to_pylist(), strict=True
        )
    ]
    return Counter(to_micros(held["window_end"])), rows.num_rows - held.num_rows, tuple(newest)
