"""Totals over all arrivals of a source and all runs of an asset.

The timeline and the ledger are append-only, so each row is read once. Totals start at the first row
of the tables, even if the process restarts.
"""

import json
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.base.instants import INFINITY
from tidemark.store import ledger
from tidemark.store.rows import compute, to_dicts, to_micros
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.snapshot.tables import Tables

_BOUNDS = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)
"""Upper bounds of the buckets for the durations of runs and steps, in seconds."""

LATENCIES = (
    0.05,
    0.1,
    0.25,
    0.5,
    0.6,
    0.75,
    0.9,
    1.0,
    1.25,
    1.5,
    1.75,
    2.0,
    2.25,
    2.5,
    2.75,
    3.0,
    3.5,
    4.0,
    5.0,
    7.5,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)
"""Upper bounds of the buckets for latencies. They are close together in the usual range of a
stream, because Prometheus estimates a quantile from its bucket.
"""

_RECENT = 20_000
"""The number of an asset's newest runs that are kept for the live page."""

Place = tuple[int, int]
"""The key of a dead letter: its arrival, and its position within the arrival."""

REPROCESSED = "reprocessed dead letters"
"""The field of an arrival's position that lists the dead letters reprocessed by the arrival. It has
a space, which the name of a Kafka topic can't have: other fields may be topics."""

_VERDICTS = ("on_time", "late", "too_late", "no_event_time", "duplicate")

_ARRIVALS = (
    "arrival",
    "arrived_at",
    "watermark_after",
    "rows",
    "max_event_time",
    "bytes",
    "position",
    "undeclared",
    "silent_since",
)
_RUNS = (
    "asset",
    "table_id",
    "mode",
    "commit_number",
    "from_arrival",
    "through_arrival",
    "window_from",
    "started_at",
    "watermark",
    "windows",
    "quarantined",
    *_VERDICTS,
    *ledger.ENDED.values(),
    "limited_by",
)


class Histogram:
    """The distribution of durations, in seconds."""

    def __init__(self, bounds: Sequence[float] = _BOUNDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def cumulated_buckets(self) -> list[tuple[str, int]]:
        """Return each bound as text, with the number of durations up to that bound."""
        names = [*(f"{b:g}" for b in self._bounds), "+Inf"]
        total = 0
        cumulated = list[tuple[str, int]]()
        for name, count in zip(names, self._counts, strict=True):
            total += count
            cumulated.append((name, total))
        return cumulated


class Timeline:
    """The arrivals of a source that were read so far. Instants are in microseconds.

    `newest_position` is the position of the newest arrival, and `position` the position of the
    newest arrival that has offsets of topics. `heard_at` is the processing time of the newest
    arrival that is not a heartbeat. If the newest arrival is a heartbeat, `silent_since` is the
    time since which the source has been silent.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._table = f"{source}_timeline"
        self._reset_totals(None)

    def _reset_totals(self, history: Hashable) -> None:
        self._history = history
        self._seen: Set[str] = frozenset[str]()
        self.arrived_at = array("q")
        self.event = array("q")
        self.rows = array("q")
        self.events = 0
        self.bytes = 0
        self.reprocessed = set[Place]()
        self.watermark: int | None = None
        self.newest_event: int | None = None
        self.heard_at: int | None = None
        self.silent_since: int | None = None
        self.position: str | None = None
        self.newest_position: str | None = None
        self.undeclared = dict[str, int]()

    @property
    def clock(self) -> int | None:
        """The processing time of the newest arrival."""
        if self.arrived_at:
            return self.arrived_at[-1]
        return None

    @property
    def count(self) -> int:
        """The number of arrivals."""
        return len(self.arrived_at)

    def count_events(self, first_excluded: int, last_included: int) -> int:
        """Return the number of events of the arrivals with `first_excluded` < number <=
        `last_included`."""
        return sum(self.rows[first_excluded + 1 : last_included + 1])

    def read_new_rows(self, tables: Tables) -> None:
        """Read the new rows, if the pause after the last read is over (`read_if_changed`)."""
        tables.read_if_changed((self._table, "rows"), [self._table], lambda: self.read_now(tables))

    def read_now(self, tables: Tables) -> None:
        """Read the new rows, even during the pause after a read."""
        history = tables.history_stamp(self._table)
        if history != self._history:
            self._reset_totals(history)
        rows, files = tables.read_new_files(self._table, _ARRIVALS, self._seen)
        if rows is not None and self._has_lower_watermarks(rows):
            self._reset_totals(history)
            rows, files = tables.read_new_files(self._table, _ARRIVALS, self._seen)
        # A compaction writes known rows again.
        rows = None if rows is None else rows.filter(ds.field("arrival") >= self.count)
        if rows is not None and rows.num_rows:
            self._add_rows(rows.sort_by("arrival"))
        self._seen = files

    def _has_lower_watermarks(self, rows: pa.Table) -> bool:
        """Return whether watermarks of known arrivals were lowered after they were read."""
        last = rows.filter(ds.field("arrival") == self.count - 1)["watermark_after"]
        return len(last) > 0 and _to_integers(last)[0] != self.watermark

    def _add_rows(self, rows: pa.Table) -> None:
        first = self.count
        newest = rows["max_event_time"]
        self.arrived_at.extend(to_micros(rows["arrived_at"]))
        # The latency of an arrival without events is measured from its processing time.
        self.event.extend(to_micros(compute.coalesce(newest, rows["arrived_at"])))
        self.rows.extend(rows["rows"].to_pylist())
        self.events += sum(self.rows[first:])
        self.bytes += sum(rows["bytes"].to_pylist())
        times = [self.newest_event, *_to_integers(newest)]
        self.newest_event = max((time for time in times if time is not None), default=None)
        heard = to_micros(rows.filter(ds.field("silent_since").is_null())["arrived_at"])
        self.heard_at = heard[-1] if heard else self.heard_at
        self.silent_since = _to_integers(rows["silent_since"].slice(rows.num_rows - 1))[0]
        self.watermark = _to_integers(rows["watermark_after"].slice(rows.num_rows - 1))[0]
        self.newest_position = rows["position"][-1].as_py()
        for arrival_position in rows["position"].to_pylist():
            self.reprocessed.update(reprocessed_letters(arrival_position))
            # Other arrivals, such as reprocessed dead letters, have no offsets of topics.
            if position.parse_position(arrival_position):
                self.position = arrival_position
        for number, fields in enumerate(rows["undeclared"].to_pylist(), first):
            self.undeclared.update(dict.fromkeys(json.loads(fields or "[]"), number))


def reprocessed_letters(arrival_position: str) -> Iterator[Place]:
    """Yield the dead letters that an arrival reprocessed, each as its arrival and its position.

    Args:
        arrival_position: the position of the reprocessing arrival in the timeline, as JSON.
    """
    parsed = json.loads(arrival_position)
    ranges = parsed.get(REPROCESSED) if isinstance(parsed, dict) else None
    # The position of a custom connector may have any fields.
    for arrival, first, last in ranges if isinstance(ranges, list) else ():
        yield from ((arrival, p) for p in range(first, last + 1))


def _to_integers(instants: pa.ChunkedArray) -> list[int | None]:
    return instants.cast(pa.int64()).to_pylist()


@dataclass(frozen=True)
class Run:
    """A run, as the live page draws it.

    Args:
        ended_at: microseconds.
        rows: the number of new events: for an increment, the events of its arrivals, each counted
            once; for a roll-up, the events that it merged; 0 for other runs.
        latency: the longest time from the newest event of an arrival to the end of the run, in
            seconds. It is None for a recording, for a run that is not an increment, and for a run
            without events.
        watermark: the watermark after the run.
        steps: the durations of its steps, in seconds, in order; empty if the ledger lacks them.
    """

    ended_at: int
    mode: str
    seconds: float
    rows: int
    events: int
    late: int
    too_late: int
    watermark: int | None
    steps: Mapping[str, float]
    latency: float | None = None


def _latency_histogram() -> Histogram:
    return Histogram(LATENCIES)


@dataclass
class Runs:
    """The totals of the runs of an asset with one table id.

    Args:
        ended: the numbers of runs by mode.
        counted: the numbers of events by mode and lateness; each event counts once.
        limited: the numbers of runs that left arrivals for the next run, by limit.
        quarantined: the number of rows that runs have put into quarantine. A row counts once for
            each of these runs.
        as_of: the arrival through which all windows are up to date; -1 before the first run.
        watermark: the watermark after that arrival.
        limited_by: the limit that stopped the newest run; None if it processed all arrivals.
        from_arrival: for each arrival with events, the time from the arrival to the end of the
            increment that processed it. Empty for recordings.
        from_event: the same, but from the newest event of the arrival.
    """

    commit_number: int = -1
    ended_at: int | None = None
    ended: Counter[str] = field(default_factory=Counter)
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    quarantined: int = 0
    limited: Counter[str] = field(default_factory=Counter)
    limited_by: str | None = None
    as_of: int = -1
    watermark: int | None = None
    seconds: dict[str, Histogram] = field(default_factory=dict)
    steps: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    from_arrival: Histogram = field(default_factory=_latency_histogram)
    from_event: Histogram = field(default_factory=_latency_histogram)
    recent: deque[Run] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def add_run(self, row: Mapping[str, Any], arrivals: Timeline, *, played: bool) -> None:
        """Add a row of the ledger.

        Args:
            arrivals: the arrivals of the asset's source.
            played: true if the source is a recording.
        """
        mode = row["mode"]
        ended = row["ended_at"]
        through = row["through_arrival"]
        took = (ended - row["started_at"]) / 1e6
        self.commit_number = row["commit_number"]
        self.ended_at = ended
        self.ended[mode] += 1
        self.quarantined += row["quarantined"]
        self.limited_by = row["limited_by"]
        if self.limited_by is not None:
            self.limited[self.limited_by] += 1
        self.seconds.setdefault(mode, Histogram()).observe(took)
        steps = {step: (end - start) / 1e6 for step, start, end in ledger.step_spans(row)}
        for step, lasted in steps.items():
            self.steps.setdefault((mode, step), Histogram()).observe(lasted)
        for verdict in _VERDICTS:
            self.counted[mode, verdict] += row[verdict]
        is_whole = mode == "incremental" or row["window_from"] is None
        if is_whole:
            self.as_of = through
            self.watermark = row["watermark"]
        is_read = through < arrivals.count
        after = row["from_arrival"]
        latency = None
        if mode == "incremental" and is_read and not played:
            # An arrival without events may wait for the next run, which delays no result.
            for n in (n for n in range(after + 1, through + 1) if arrivals.rows[n]):
                self.from_arrival.observe(max(0, ended - arrivals.arrived_at[n]) / 1e6)
                since = max(0, ended - arrivals.event[n]) / 1e6
                self.from_event.observe(since)
                latency = max(latency or 0.0, since)
        events = sum(row[verdict] for verdict in _VERDICTS)
        self.recent.append(
            Run(
                ended_at=ended,
                mode=mode,
                seconds=took,
                rows=_new_events(row, arrivals, events),
                events=events,
                late=row["late"],
                too_late=row["too_late"],
                watermark=row["watermark"],
                steps=steps,
                latency=latency,
            )
        )


class Ledger:
    """The totals of some assets' runs, from the rows of the ledger that were read so far.

    Args:
        assets: the timeline of the source of each asset, by the name of the asset.
        recordings: the names of the sources that are recordings.
    """

    def __init__(self, assets: Mapping[str, Timeline], recordings: Container[str] = ()) -> None:
        self._assets = assets
        self._recordings = recordings
        self._reset_runs(None)

    def _reset_runs(self, history: Hashable) -> None:
        self._history = history
        self._seen: Set[str] = frozenset[str]()
        self._runs: dict[str, dict[str, Runs]] = {asset: {} for asset in self._assets}

    def read_new_rows(self, tables: Tables) -> None:
        """Read the new rows, if the pause after the last read is over (`read_if_changed`)."""
        tables.read_if_changed(
            (ledger.TABLE, "rows"), [ledger.TABLE], lambda: self._read_now(tables)
        )

    def _read_now(self, tables: Tables) -> None:
        history = tables.history_stamp(ledger.TABLE)
        if history != self._history:
            self._reset_runs(history)
        table, files = tables.read_new_files(ledger.TABLE, _RUNS, self._seen)
        if table is not None:
            self._add_rows(table, tables)
        self._seen = files

    def _add_rows(self, table: pa.Table, tables: Tables) -> None:
        own_runs = table.filter(ds.field("asset").isin(list(self._assets)))
        # Each row of the ledger is added only once, and needs the arrivals that the run processed.
        # They were committed before the row, and are therefore read even during a pause.
        for asset in set(own_runs["asset"].to_pylist()):
            self._assets[asset].read_now(tables)
        for row in to_dicts(own_runs.sort_by("commit_number")):
            asset = row["asset"]
            runs = self._runs[asset].setdefault(row["table_id"], Runs())
            # A compaction writes known rows again.
            if row["commit_number"] > runs.commit_number:
                timeline = self._assets[asset]
                runs.add_run(row, timeline, played=timeline.source in self._recordings)

    def runs_of(self, asset: str, table_id: str | None) -> Runs:
        """Return the totals of an asset's runs with a table id; zeros if it has no such runs."""
        return self._runs[asset].get(table_id or "", Runs())


def lag_seconds(clock: int, watermark: int | None) -> float | None:
    """Return the lag of a watermark behind a clock, in seconds.

    Return None before the first watermark and after the end of the source.
    """
    if watermark is None or watermark >= INFINITY:
        return None
    return max(0, clock - watermark) / 1e6


def _new_events(row: Mapping[str, Any], arrivals: Timeline, events: int) -> int:
    if row["mode"] == "rollup":
        return events
    if row["mode"] != "incremental":
        return 0
    return arrivals.count_events(row["from_arrival"], row["through_arrival"])
