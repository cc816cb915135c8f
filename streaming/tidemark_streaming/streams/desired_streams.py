"""Requests for streams: which streams should run without a command.

A request is the wish in the record of a stream (`store.workers`). It outlives the stream, the
engine and a restart of the machine: the supervisor restarts requested streams that do not run. The
record also names the query that was last started for the request. The supervisor has a record too:
its owner is responsible for the streams of a domain.
"""

import time
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from tidemark.base.errors import ConflictError
from tidemark.base.settings import Settings
from tidemark.run.admission import ALL, Admission
from tidemark.store.workers.owner import Owner
from tidemark.store.workers.record import SECOND, WorkerRecord
from tidemark.store.workers.record_store import STREAM, SUPERVISOR, records_of


@dataclass(frozen=True)
class DesiredStream:
    """A request to keep a stream running, with the limits of its runs.

    Args:
        arrivals_per_run, rows_per_run, bytes_per_run: the limits of a run; None for no limit.
        since: the time of the request, in microseconds, which identifies the request.
    """

    asset: str
    arrivals_per_run: int | None
    since: int
    rows_per_run: int | None = None
    bytes_per_run: int | None = None

    @property
    def admission(self) -> Admission:
        """The limits of a run."""
        return Admission(self.arrivals_per_run, self.rows_per_run, self.bytes_per_run)


class _Start(NamedTuple):
    """A query that was started for a request.

    Args:
        since: the time of the request, in microseconds.
        query, run: the IDs of the query and of this start, as in `queries.Query`.
    """

    since: int
    query: str
    run: str


def request_stream(settings: Settings, asset: str, admission: Admission = ALL) -> DesiredStream:
    """Request an asset's stream. An earlier request and its limits are replaced."""
    requested_at = time.time_ns() // 1000
    limits = admission
    stream = DesiredStream(asset, limits.arrivals, requested_at, limits.rows, limits.bytes)
    records_of(settings).change_record(
        STREAM, asset, lambda record: replace(record, wish=asdict(stream))
    )
    return stream


def cancel_request(settings: Settings, asset: str) -> bool:
    """Cancel the request for an asset's stream. Return False if there was none."""
    was_requested = False

    def withdraw_wish(record: WorkerRecord) -> WorkerRecord:
        nonlocal was_requested
        was_requested = record.wish is not None
        return replace(record, wish=None, report={})

    records_of(settings).change_record(STREAM, asset, withdraw_wish)
    return was_requested


def find_request(settings: Settings, asset: str) -> DesiredStream | None:
    """Return the request for an asset's stream; None if there is none."""
    return _read_request(records_of(settings).read_record(STREAM, asset))


def read_all(settings: Settings) -> dict[str, DesiredStream]:
    """Return all requests, by asset."""
    requests = map(_read_request, records_of(settings).list_records(STREAM))
    return {request.asset: request for request in requests if request is not None}


def record_start(settings: Settings, stream: DesiredStream, query: str, run: str) -> None:
    """Record that a query was started for a request."""
    start = _Start(stream.since, query, run)._asdict()
    records_of(settings).change_record(
        STREAM, stream.asset, lambda record: replace(record, report={"start": start})
    )


def find_start(settings: Settings, asset: str) -> _Start | None:
    """Return the query that was started last for a request of the asset; None if it is unknown."""
    start = records_of(settings).read_record(STREAM, asset).report.get("start")
    if start is None:
        return None
    return _Start(**start)


def renew_lease(settings: Settings, domain: str, owner: str, lasts: float) -> None:
    """Take or keep the lease that makes an owner the supervisor of a domain for `lasts` seconds.

    A supervisor that renews its lease every half minute also holds it between renewals, and a
    supervisor that died loses its lease after `lasts` seconds.

    Raises:
        ConflictError: another supervisor holds the lease.
    """

    def renew_record(record: WorkerRecord) -> WorkerRecord:
        if record.owner is not None and record.owner.name != owner and record.has_lease:
            age = max(time.time_ns() // 1000 - (record.until - record.lasts), 0) / SECOND
            raise ConflictError(
                f"Another supervisor is responsible for these streams: {record.owner.name}, active "
                f"{age:.0f} seconds ago. This supervisor ({owner}) is idle until the other one "
                "stops."
            )
        return record.owned_by(Owner(owner), int(lasts * SECOND))

    records_of(settings).change_record(SUPERVISOR, domain, renew_record)


def _read_request(record: WorkerRecord) -> DesiredStream | None:
    if record.wish is None:
        return None
    return DesiredStream(**record.wish)
