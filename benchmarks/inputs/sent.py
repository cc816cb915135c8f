"""Send events to a topic. Record when each event was sent, and the expected windows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from deltalake import DeltaTable

from benchmarks.measuring.measure import TOLERANCE
from tidemark.base.settings import Settings
from tidemark_streaming.kafka import broker

WINDOW = 10_000_000
_BY = ["window", "shop"]


class Sent:
    """All events that were sent to a topic so far."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._windows = list[pd.DataFrame]()
        self.events = 0

    def send(self, rate: int, seconds: float) -> "npt.NDArray[np.float64]":
        """Send events at a steady rate. Return when each was sent, in seconds since 1970."""
        file = self._settings.home / "sent.npz"
        arguments = [
            broker.broker_address(self._settings),
            self._topic,
            str(rate),
            str(seconds),
            str(file),
        ]
        subprocess.run([sys.executable, "-m", "benchmarks.inputs.load", *arguments], check=True)
        with np.load(file) as sent:
            at, shop, cents = sent["sent"], sent["shop"], sent["cents"]
        self.events += len(at)
        amount = cents / 100
        rows = pd.DataFrame(
            {
                "window": at // WINDOW,
                "shop": shop,
                "events": 1,
                "takings": amount,
                "largest": amount,
            }
        )
        self._windows.append(_sum_windows(rows))
        return at / 1e6

    def differing(self, table: Path) -> int:
        """Return the number of a table's windows that differ from those of the sent events."""
        columns = ["window_start", "shop", "events", "takings", "largest"]
        rows = DeltaTable(table).to_pyarrow_table(columns=columns).to_pandas()
        rows["window"] = rows["window_start"].astype("int64") // _unit(rows) // WINDOW
        rows["shop"] = rows["shop"].str.removeprefix("shop ").astype("int16")
        sent = _sum_windows(pd.concat(self._windows))
        both = sent.merge(rows, on=_BY, how="outer", suffixes=("", "_there"))
        same = both["events"] == both["events_there"]
        for name in ("takings", "largest"):
            near = (both[name] - both[f"{name}_there"]).abs() <= TOLERANCE * both[name].abs()
            same &= near
        return int((~same).sum())


def _sum_windows(rows: pd.DataFrame) -> pd.DataFrame:
    sums = {"events": "sum", "takings": "sum", "largest": "max"}
    return rows.groupby(_BY, as_index=False).agg(sums)


def _unit(rows: pd.DataFrame) -> int:
    """Return how many units of a table's timestamps one microsecond has."""
    return {"us": 1, "ns": 1000}[str(rows["window_start"].dtype.unit)]  # pyright: ignore
