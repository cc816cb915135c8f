"""The ledger: one row for each finished run, with its facts.

A run writes its row last, so a commit of the state that has no row was not, or perhaps not, fully
published; the next run publishes it again first. The row is a plain append, which takes a third of
an idempotent one's time; a process killed within it may leave a second row of the same commit.
"""

from dataclasses import asdict, dataclass
from typing import get_type_hints

from pyspark.sql import functions as F

from tidemark.store.warehouse import Warehouse

TABLE = "runs"


@dataclass(frozen=True)
class RunFacts:
    """What a run did. Instants are microseconds; the ledger holds them as timestamps.

    Args:
        run: the run's id.
        asset: the transform's name.
        mode: `incremental`, `backfill` or `correction`; `rollup` for a run of a roll-up.
        answer: `as_streamed` or `complete`.
        seq: the number of its commit in the state; a roll-up's, of the last commit of its base that
            it followed.
        from_arrival, through_arrival: it covered the arrivals (from, through].
        window_from, window_to: the windows replaced start in [from, to), a correction's here and
            there; None is no bound.
        started_at, ended_at: wall-clock time.
        watermark: the source's watermark after `through_arrival`; None is minus infinity.
        windows: rows published; 0 where an earlier run had published them before it ended.
        on_time, late, too_late, no_event_time, duplicate: events by verdict, once for each of their
            windows; of a roll-up, those alone that count.
        quarantined: rows withheld because they failed an expectation.
        warned: rows published that failed one of level `warning`.
        reported: whether who began it tells the orchestrator of it; not where a later run ended it.
    """

    run: str
    asset: str
    mode: str
    answer: str
    seq: int
    from_arrival: int
    through_arrival: int
    window_from: int | None
    window_to: int | None
    started_at: int
    ended_at: int
    watermark: int | None
    windows: int
    quarantined: int
    warned: int
    on_time: int
    late: int
    too_late: int
    no_event_time: int
    duplicate: int
    reported: bool

    @property
    def events(self) -> int:
        """All events, once for each of their windows."""
        admitted = self.on_time + self.late
        return admitted + self.too_late + self.no_event_time + self.duplicate

    @property
    def seconds(self) -> float:
        """How long the run took."""
        return (self.ended_at - self.started_at) / 1e6


_INSTANTS = ("window_from", "window_to", "started_at", "ended_at", "watermark")
_TYPES = {int: "BIGINT", int | None: "BIGINT", str: "STRING", bool: "BOOLEAN"}
_SCHEMA = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in get_type_hints(RunFacts).items())


def append(warehouse: Warehouse, facts: RunFacts) -> None:
    """Record a finished run."""
    create(warehouse)
    rows = warehouse.spark.createDataFrame([tuple(asdict(facts).values())], _SCHEMA)
    warehouse.add(rows.withColumns({name: F.timestamp_micros(name) for name in _INSTANTS}), TABLE)


def create(warehouse: Warehouse) -> None:
    """Create the ledger, unless it is there."""
    columns = [
        f"{name} {'TIMESTAMP' if name in _INSTANTS else _TYPES[kind]}"
        for name, kind in get_type_hints(RunFacts).items()
    ]
    warehouse.create(TABLE, ", ".join(columns), "Every run of every asset")


def published(warehouse: Warehouse, asset: str) -> int:
    """The number of the newest commit of the asset's state that is known to be published; or -1."""
    if not warehouse.exists(TABLE):
        return -1
    newest = warehouse.read(TABLE).where(F.col("asset") == asset).agg(F.max("seq")).first()
    return -1 if newest is None or newest[0] is None else int(newest[0])
