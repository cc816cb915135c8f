"""Requests for streams: one small file per stream that should run.

The files are in the folder `streams` of the home. A request outlives the stream, the engine and a
restart of the machine: the supervisor restarts requested streams that do not run. A request is made
by writing its file, and canceled by deleting the file; both are atomic. Another file next to a
request records the query that was last started for the request. A lease file determines which
supervisor is responsible.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tidemark.base.errors import ConflictError
from tidemark.base.files import atomic
from tidemark.base.files.private import make_folder, open_lock
from tidemark.base.settings import Settings
from tidemark.run.admission import ALL, Admission


@dataclass(frozen=True)
class DesiredStream:
    """A request for a stream.

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


def request(settings: Settings, asset: str, admission: Admission = ALL) -> DesiredStream:
    """Request an asset's stream. An earlier request and its limits are replaced."""
    now, limits = time.time_ns() // 1000, admission
    wanted = DesiredStream(asset, limits.arrivals, now, limits.rows, limits.bytes)
    path = _file(settings, asset)
    make_folder(path.parent)
    atomic.write(path, json.dumps(asdict(wanted)))
    return wanted


def cancel(settings: Settings, asset: str) -> bool:
    """Cancel the request for an asset's stream. Return False if there was none."""
    _start_file(settings, asset).unlink(missing_ok=True)
    try:
        _file(settings, asset).unlink()
    except FileNotFoundError:
        return False
    return True


def find(settings: Settings, asset: str) -> DesiredStream | None:
    """Return the request for an asset's stream; None if there is none."""
    text = _read(_file(settings, asset))
    return DesiredStream(**json.loads(text)) if text else None


def read_all(settings: Settings) -> dict[str, DesiredStream]:
    """Return all requests, by asset."""
    files = sorted(folder(settings).glob("[!.]*.json"))
    found = [DesiredStream(**json.loads(text)) for f in files if (text := _read(f))]
    return {w.asset: w for w in found}


def record_start(settings: Settings, wanted: DesiredStream, query: str, run: str) -> None:
    """Record that a query was started for a request."""
    file = _start_file(settings, wanted.asset)
    atomic.write(file, json.dumps(_Start(wanted.since, query, run)))


def find_start(settings: Settings, asset: str) -> _Start | None:
    """Return the query that was started last for a request of the asset; None if it is unknown."""
    text = _read(_start_file(settings, asset))
    return _Start(*json.loads(text)) if text else None


def folder(settings: Settings) -> Path:
    """Return the folder of the requests of the settings' database."""
    return settings.home / "streams" / settings.database


def _file(settings: Settings, asset: str) -> Path:
    return folder(settings) / f"{asset}.json"


def _start_file(settings: Settings, asset: str) -> Path:
    return folder(settings) / f".{asset}.query"


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        # The stream was not requested, or its request was canceled since the files were listed.
        return ""


def renew_lease(file: Path, owner: str, lasts: float) -> None:
    """Take or keep the lease in `file`, which makes its owner the supervisor for `lasts` seconds.

    Unlike a lock, a lease lasts for a time. A supervisor that renews its lease every half minute
    also holds it between renewals, and a supervisor that died loses its lease after `lasts`
    seconds. If the recorded time of the last renewal is far in the future, the clock was set back
    since, and the lease counts as expired. A recorded time slightly in the future is valid, because
    the clocks of two machines may differ.

    Raises:
        ConflictError: another supervisor holds the lease.
    """
    with _lock_lease(file):
        now = time.time()
        lease: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"owner": owner}
        if lease["owner"] != owner and abs(now - lease["at"]) < lasts:
            raise ConflictError(
                f"Another supervisor is responsible for these streams: {lease['owner']}, active "
                f"{max(now - lease['at'], 0):.0f} seconds ago. This supervisor ({owner}) is idle "
                "until the other one stops."
            )
        atomic.write(file, json.dumps({"owner": owner, "at": now}))


@contextmanager
def _lock_lease(file: Path) -> Iterator[None]:
    make_folder(file.parent)
    lock = open_lock(file.with_name(f".{file.name}.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
