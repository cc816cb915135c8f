"""A glance at the tables without the engine: how far the sources and assets are.

Delta tables are read by a library in this process, file statistics first, so that a status or a
live view costs the engine nothing and works when it is down. A table that is not there yet gives
nothing. What the ledger and the results say of an asset that was dropped and made anew is told of
its present life alone.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.base.instants import EPOCH, as_datetime
from tidemark.base.settings import Settings
from tidemark.store import rollup_generation
from tidemark.store.arrival import Arrival, read_arrivals
from tidemark.store.log_columns import schema_version
from tidemark.store.rows import INSTANT, arrow_schema, to_dicts, to_micros
from tidemark_streaming import scan

_WHOLE = (ds.field("mode") == "incremental") | ds.field("window_from").is_null()
"""Runs after which all windows are complete: one of a range says nothing of those outside it."""


@dataclass(frozen=True)
class SourceGlance:
    """How far a source is. Instants are microseconds; None where nothing has arrived.

    `schema_version` is 1 at first, and one more each time that the source gained columns.
    """

    source: str
    arrivals: int
    events: int
    arrived_at: int | None
    watermark: int | None
    newest_event: int | None
    schema_version: int | None = None


@dataclass(frozen=True)
class AssetGlance:
    """How far an asset is.

    Args:
        as_of: the arrival through which it is complete; -1 before the first run.
        windows: rows published.
        final: of them, those that nothing will change any more.
        open: rows under way: not published yet, or not final; of a roll-up, which has no state of
            its own, those not final.
        late, too_late: events so far, by its published and its late table.
    """

    asset: str
    source: str
    as_of: int
    watermark: int | None
    windows: int
    final: int
    open: int
    late: int
    too_late: int


@dataclass(frozen=True)
class Waiting:
    """What has come of a source and is not in an asset yet.

    Args:
        limited_by: which limit of its newest run left it there; None where none did.
    """

    arrivals: int = 0
    rows: int = 0
    limited_by: str | None = None

    def __str__(self) -> str:
        limit = "" if self.limited_by is None else f", limited by {self.limited_by}"
        return f"{self.rows:,} rows waiting{limit}"


class Glance:
    """Reads the tables of one database."""

    def __init__(self, settings: Settings) -> None:
        self._root = f"{settings.warehouse}/{settings.database}"
        self._seen: dict[tuple[str, str], tuple[tuple[str, int], str, pa.Table]] = {}

    def source(self, name: str) -> SourceGlance:
        """How far a source is."""
        timeline = self.read(
            f"{name}_timeline",
            ["arrival", "rows", "arrived_at", "watermark_after", "max_event_time"],
        )
        if timeline is None or timeline.num_rows == 0:
            return SourceGlance(name, 0, 0, None, None, None)
        return SourceGlance(
            source=name,
            arrivals=timeline.num_rows,
            events=_sum(timeline["rows"]),
            arrived_at=_newest(timeline["arrived_at"]),
            watermark=_newest(timeline["watermark_after"]),
            newest_event=_newest(timeline["max_event_time"]),
            schema_version=self._schema_version(f"{name}_log"),
        )

    def waiting(self, asset: AssetGlance) -> Waiting:
        """What has come of an asset's source and is not in the asset yet."""
        beyond = self.select(
            f"{asset.source}_timeline", ["rows"], ds.field("arrival") > asset.as_of
        )
        if beyond is None or not beyond.num_rows:
            return Waiting()
        run = self.last_run(asset.asset)
        # A ledger of before has no such column until the next run.
        limited_by = None if run is None else run.get("limited_by")
        return Waiting(beyond.num_rows, _sum(beyond["rows"]), limited_by)

    def timeline(self, source: str) -> list[Arrival]:
        """All arrivals of a source, in order."""
        table = self.read(f"{source}_timeline", None)
        return [] if table is None else read_arrivals(table)

    def undeclared(self, source: str) -> dict[str, int]:
        """Fields that came beside a source's columns, each with the newest arrival that had it."""
        table = f"{source}_timeline"
        if "undeclared" not in self.types(table):
            return {}
        chosen = ds.field("undeclared").is_valid()
        rows = self.select(table, ["arrival", "undeclared"], chosen)
        found = [] if rows is None else rows.sort_by("arrival").to_pylist()
        return {name: r["arrival"] for r in found for name in json.loads(r["undeclared"])}

    def newest_arrival(self, source: str) -> int:
        """The number of a source's newest arrival; -1 before the first."""
        table = self.read(f"{source}_timeline", ["arrival"])
        return -1 if table is None else max(table["arrival"].to_pylist(), default=-1)

    def newest_event(self, source: str) -> int | None:
        """The newest event time of a source; None before the first event."""
        table = self.read(f"{source}_timeline", ["max_event_time"])
        return None if table is None else _newest(table["max_event_time"])

    def behind(self, assets: Iterable[str], newest: int) -> list[str]:
        """Those of some assets that are not complete through the arrival `newest`."""
        wanted = list(assets)
        # File statistics leave only the runs that got so far to be read, however long the ledger.
        there = (ds.field("through_arrival") >= newest) & _of(wanted)
        done = self._newest_of("runs", there & _WHOLE)
        # Who went back, or on with another log, was there once.
        elsewhere = (ds.field("mode") != "incremental") & ds.field("window_from").is_null()
        short = (ds.field("through_arrival") < newest) & _of(wanted)
        left = self._newest_of("runs", elsewhere & short)
        lives = {asset: self.life(asset) or "" for asset in wanted}
        return [a for a, life in lives.items() if done[a, life] <= left[a, life]]

    def _newest_of(self, table: str, chosen: ds.Expression) -> defaultdict[tuple[str, str], int]:
        """Of some rows of the ledger, the newest number of each asset in each of its lives; -1
        where there is none."""
        rows = self.select(table, ["asset", "life", "seq"], chosen)
        found = defaultdict[tuple[str, str], int](lambda: -1)
        for row in [] if rows is None else rows.to_pylist():
            own = row["asset"], row["life"]
            found[own] = max(found[own], row["seq"])
        return found

    def unfollowed(self, bases: Mapping[str, str]) -> dict[str, int]:
        """Roll-ups that have not followed every run of the present life of their base, each with
        the number of its newest one.

        Args:
            bases: by roll-up, the base.
        """
        found = dict[str, int]()
        runs = self._opened("runs") if bases else None
        if runs is None:
            return found
        for name, base in bases.items():
            life = self.life(base)
            newest = _published(runs, f"{base}/{life}")
            # It begins anew with its base as well as with its own table.
            own = self._opened(name)
            followed = -1 if own is None else _published(runs, f"{name}/{life}{_own_life(own)}")
            if followed < newest:
                found[name] = newest
        return found

    def counts(self, assets: Iterable[str]) -> Counter[str]:
        """How many runs of some assets the ledger has, of all their lives."""
        table = self.select("runs", ["asset"], _of(assets))
        return Counter([] if table is None else table["asset"].to_pylist())

    def runs(self, since: int = 0) -> list[dict[str, Any]]:
        """The ledger's rows, of all assets, of runs of their present lives that ended at `since` or
        later, in order, with instants in microseconds."""
        ended = ds.field("ended_at") >= pa.scalar(as_datetime(since), INSTANT)
        table = self.select("runs", None, ended)
        rows: list[dict[str, Any]] = [] if table is None else to_dicts(table)
        lives = {asset: self.life(asset) for asset in {r["asset"] for r in rows}}
        present = (r for r in rows if r["life"] == lives[r["asset"]])
        return sorted(present, key=lambda r: (r["asset"], r["seq"]))

    def runs_after(self, asset: str, seq: int) -> list[dict[str, Any]]:
        """The ledger's rows of the runs of an asset's present life after the one of that number, in
        order, with instants in microseconds."""
        own = (ds.field("asset") == asset) & (ds.field("life") == (self.life(asset) or ""))
        table = self.select("runs", None, own & (ds.field("seq") > seq))
        return [] if table is None else to_dicts(table.sort_by("seq"))

    def runs_before(self, asset: str, seq: int) -> list[dict[str, Any]]:
        """The same of those before it: how far each brought the asset, and who reports it."""
        own = (ds.field("asset") == asset) & (ds.field("life") == (self.life(asset) or ""))
        columns = ["seq", "watermark", "window_from", "reported"]
        table = self.select("runs", columns, own & (ds.field("seq") < seq))
        return [] if table is None else to_dicts(table.sort_by("seq"))

    def life(self, asset: str) -> str | None:
        """The identity that an asset has had since its first run, as in the ledger; None where it
        has not run, also not since it was dropped."""
        state = self._opened(f"{asset}_state")
        if state is not None:
            return str(state.metadata().id)
        # A roll-up has none: it begins anew with its base as well as with its own table, and where
        # that has windows of another kind.
        own = self._opened(asset)
        if own is None:
            return None
        table = self.read("runs", ["life", "started_at"], asset=asset)
        rows = [] if table is None else table.to_pylist()
        mine = [r for r in rows if r["life"].endswith(_own_life(own))]
        newest = max(mine, key=lambda r: r["started_at"], default=None)
        return None if newest is None else newest["life"]

    def windows(self, asset: str, commits: Collection[int]) -> list[int]:
        """The starts of the windows last published by one of these commits."""
        fresh = (ds.field("seq") >= min(commits)) & ds.field("seq").isin(sorted(commits))
        table = self.select(asset, ["window_start"], fresh)
        return [] if table is None else to_micros(table["window_start"].unique())

    def between(
        self, table: str, columns: list[str], start: int, end: int
    ) -> tuple[list[int], pa.Table] | None:
        """Rows of a table of windows that start in [start, end), and their starts."""
        begin = ds.field("window_start")
        first, last = (pa.scalar(as_datetime(t), INSTANT) for t in (start, end))
        found = self.select(table, ["window_start", *columns], (begin >= first) & (begin < last))
        return None if found is None else (to_micros(found["window_start"]), found)

    def asset(self, name: str, source: str, keys: Iterable[str], lateness: int) -> AssetGlance:
        """How far an asset of these keys and allowed lateness (microseconds) is."""
        own = (ds.field("asset") == name) & (ds.field("life") == (self.life(name) or ""))
        # Who went back, or on with another log, is not where it was furthest.
        runs = self.select("runs", ["seq", "through_arrival", "watermark"], own & _WHOLE)
        rows = [] if runs is None else runs.to_pylist()
        newest = max(rows, key=lambda r: r["seq"], default=None)
        mark = None if newest is None else _micros(newest["watermark"])
        published = self.read(name, ["final", "late_events"])
        missed = self.read(f"{name}_late", ["reason"])
        windows = 0 if published is None else published.num_rows
        final = 0 if published is None else _sum(published["final"])
        waiting = self._under_way(name, keys, None if mark is None else mark - lateness)
        return AssetGlance(
            asset=name,
            source=source,
            as_of=-1 if newest is None else newest["through_arrival"],
            watermark=mark,
            windows=windows,
            final=final,
            open=windows - final if waiting is None else waiting,
            late=0 if published is None else _sum(published["late_events"]),
            too_late=0 if missed is None else missed["reason"].to_pylist().count("too_late"),
        )

    def last_published(self, asset: str, seq: int) -> list[dict[str, Any]]:
        """The rows that the asset's commit `seq` published, newest window first."""
        table = self.read(asset, None, seq=seq)
        rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
        return sorted(rows, key=lambda r: r["window_start"], reverse=True)

    def last_run(self, asset: str) -> dict[str, Any] | None:
        """The ledger's newest row of an asset's present life."""
        table = self.read("runs", None, asset=asset, life=self.life(asset) or "")
        rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
        return max(rows, key=lambda r: r["seq"], default=None)

    def read(self, table: str, columns: list[str] | None, **equal: object) -> pa.Table | None:
        """Rows of a table in which each column of `equal` has that value."""
        chosen = None
        for name, value in equal.items():
            condition = ds.field(name) == value
            chosen = condition if chosen is None else chosen & condition
        return self.select(table, columns, chosen)

    def select(
        self, table: str, columns: list[str] | None, chosen: ds.Expression | None
    ) -> pa.Table | None:
        """Rows of a table of which a condition is true; None where there is no such table."""
        try:
            return self._select(table, columns, chosen)
        except FileNotFoundError:
            # Another table of that name has come since it was opened.
            return self._select(table, columns, chosen)

    def _select(
        self, table: str, columns: list[str] | None, chosen: ds.Expression | None
    ) -> pa.Table | None:
        found = self._opened(table)
        if found is None:
            return None
        # Who looks every second finds most tables as they were.
        asked, stands = (table, str(columns)), (str(found.metadata().id), found.version())
        before, condition, rows = self._seen.get(asked, (("", -1), "", None))
        if rows is None or before != stands or condition != str(chosen):
            rows = scan.rows(found, columns, chosen)
            self._seen[asked] = (stands, str(chosen), rows)
        return rows

    def identity(self, table: str) -> str | None:
        """What tells a table from another one in its place; None where there is no such table."""
        found = self._opened(table)
        return None if found is None else str(found.metadata().id)

    def version(self, table: str) -> int | None:
        """The newest version of a table; None if there is no table."""
        there = self._opened(table)
        return None if there is None else there.version()

    def types(self, table: str) -> dict[str, pa.DataType]:
        """Return the types of a table's columns by their names; none if the table is missing."""
        found = self._opened(table)
        return {} if found is None else {f.name: f.type for f in arrow_schema(found.schema())}

    def _schema_version(self, log: str) -> int | None:
        found = self._opened(log)
        if found is None:
            return None
        said = {n: v or "" for n, v in found.metadata().configuration.items()}
        return schema_version(said, [field.name for field in found.schema().fields])

    def _opened(self, table: str) -> DeltaTable | None:
        """A table as it is now; None where there is none. Opened anew each time: one that was
        opened before would not notice that another has come in its place."""
        with suppress(TableNotFoundError):
            return DeltaTable(f"{self._root}/{table}")
        return None

    def _under_way(self, asset: str, keys: Iterable[str], after: int | None) -> int | None:
        on = ["window_start", "window_end", *keys]
        chosen = ds.field("window_end").is_valid() & ds.field("admitted")
        if after is not None:
            chosen &= ds.field("window_end") > pa.scalar(as_datetime(after), INSTANT)
        table = self.select(f"{asset}_state", on, chosen)
        return None if table is None else table.group_by(on).aggregate([]).num_rows


def _of(assets: Iterable[str]) -> ds.Expression:
    """Rows of some assets, or of none."""
    return ds.field("asset").isin(pa.array(assets, pa.string()))


def _own_life(own: DeltaTable) -> str:
    """What the life of a roll-up has of its own table, after that of its base."""
    found = own.metadata()
    return f"+{rollup_generation.table_identity(str(found.id), found.configuration)}"


def _published(runs: DeltaTable, app: str) -> int:
    """The number of the newest run that the ledger has of an asset's life; -1 before the first."""
    seq = runs.transaction_version(app)
    return -1 if seq is None else seq


def _newest(column: pa.ChunkedArray) -> int | None:
    return _micros(max((v for v in column.to_pylist() if v is not None), default=None))


def _micros(value: datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // timedelta(microseconds=1)


def _sum(column: pa.ChunkedArray) -> int:
    return int(column.to_numpy().sum())
