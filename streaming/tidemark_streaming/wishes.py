"""Which streams should run: one small file for each, in the folder `streams` of the home.

A wish outlives the stream, the engine and the machine's restart: whoever looks after streams
starts again what is wished for and does not run. To wish is to write a file, to stop is to delete
it; both are atomic. Beside a wish there is put down which query was started for it last.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tidemark.base import atomic
from tidemark.base.private import make_folder
from tidemark.base.settings import Settings
from tidemark.run.admission import ALL, Admission


@dataclass(frozen=True)
class Wish:
    """A stream that should run.

    Args:
        asset: whose.
        arrivals_per_run, rows_per_run, bytes_per_run: a run's limits; None is no limit.
        since: when it was asked for, in microseconds: one wish is told from the next by it.
    """

    asset: str
    arrivals_per_run: int | None
    since: int
    rows_per_run: int | None = None
    bytes_per_run: int | None = None

    @property
    def admission(self) -> Admission:
        """What a run takes in at most."""
        return Admission(self.arrivals_per_run, self.rows_per_run, self.bytes_per_run)


class Start(NamedTuple):
    """A query that was started for a wish.

    Args:
        since: when the stream was asked for, in microseconds.
        query, run: the ids of the query.
    """

    since: int
    query: str
    run: str


def wish(settings: Settings, asset: str, admission: Admission = ALL) -> Wish:
    """Ask for an asset's stream, also when it was asked for before."""
    now, limits = time.time_ns() // 1000, admission
    wanted = Wish(asset, limits.arrivals, now, limits.rows, limits.bytes)
    path = _file(settings, asset)
    make_folder(path.parent)
    atomic.write(path, json.dumps(asdict(wanted)))
    return wanted


def withdraw(settings: Settings, asset: str) -> bool:
    """Ask for an asset's stream no more; False where nobody had."""
    _start_file(settings, asset).unlink(missing_ok=True)
    try:
        _file(settings, asset).unlink()
    except FileNotFoundError:
        return False
    return True


def of(settings: Settings, asset: str) -> Wish | None:
    """The wish for an asset's stream, if it is asked for."""
    text = _read(_file(settings, asset))
    return Wish(**json.loads(text)) if text else None


def all_of(settings: Settings) -> dict[str, Wish]:
    """All that is asked for, by asset."""
    files = sorted(folder(settings).glob("[!.]*.json"))
    found = [Wish(**json.loads(text)) for f in files if (text := _read(f))]
    return {w.asset: w for w in found}


def started(settings: Settings, wanted: Wish, query: str, run: str) -> None:
    """Put down that a query was started for a wish."""
    file = _start_file(settings, wanted.asset)
    atomic.write(file, json.dumps(Start(wanted.since, query, run)))


def start_of(settings: Settings, asset: str) -> Start | None:
    """The query that was started last for a wish of the asset's, where that is known."""
    text = _read(_start_file(settings, asset))
    return Start(*json.loads(text)) if text else None


def folder(settings: Settings) -> Path:
    """Where the wishes of the settings' database are."""
    return settings.home / "streams" / settings.database


def _file(settings: Settings, asset: str) -> Path:
    return folder(settings) / f"{asset}.json"


def _start_file(settings: Settings, asset: str) -> Path:
    return folder(settings) / f".{asset}.query"


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        # Nobody asked, or it was withdrawn since it was listed.
        return ""
