"""The figures that show how far a source or an asset is."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.base.counts import format_count


@dataclass(frozen=True)
class SourceSnapshot:
    """How far a source has been ingested, and the numbers of its events.

    Instants are in microseconds, or None before the first arrival.

    Args:
        events: the events in the event log.
        arrived_at: the processing time of the newest arrival that is not a heartbeat.
        clock: the processing time of the newest arrival.
        silent_since: the time since which an ingest that follows the source has found no data; None
            if the newest arrival is not a heartbeat.
        schema_version: 1 at first, and incremented each time that the source gains columns.
        dead_letters: dead letters that have not been reprocessed; 0 for a derived source.
        undeclared: fields that the source does not declare, each with its newest arrival.
        lag_arrivals: for a derived source, the number of arrivals that it has not taken yet, by
            base. A chain also has an entry with the name of its asset. That entry counts the runs,
            such as corrections, that changed windows after the chain had read them. Runs that the
            chain has processed do not count.
        unjoined: for a derived source, the number of rows of its bases that take no part in it.
    """

    name: str
    arrivals: int
    events: int
    arrived_at: int | None
    clock: int | None
    silent_since: int | None
    watermark: int | None
    newest_event: int | None
    schema_version: int | None
    dead_letters: int
    undeclared: Mapping[str, int]
    lag_arrivals: Mapping[str, int]
    unjoined: int


@dataclass(frozen=True)
class AssetSnapshot:
    """How far an asset has processed its source, and the numbers of its rows and events.

    Args:
        as_of: the arrival through which it is up to date; -1 before the first run. Later arrivals
            without events count as processed if they change no window.
        watermark: the watermark after that arrival.
        windows: published rows.
        final: published rows that can't change any more.
        open: rows of open windows, published or not.
        late: the late events in its published table, once for each of their windows.
        too_late: the events in its late table, each of them once.
        behind, rows_waiting: arrivals that it has not processed yet, and their events.
        limited_by: the limit because of which the newest run left arrivals for the next run; None
            if it left none.
        unfollowed: for a roll-up that has not processed all runs of its base, the name of the base;
            otherwise None.
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
    behind: int
    rows_waiting: int
    limited_by: str | None
    unfollowed: str | None

    @property
    def waiting_text(self) -> str:
        """The waiting rows as a message, such as `5 rows waiting, limited by arrivals`."""
        limit = "" if self.limited_by is None else f", limited by {self.limited_by}"
        return f"{format_count(self.rows_waiting, 'row')} waiting{limit}"
