"""`python -m benchmarks.latency`: from an event in Kafka to its window in a Delta table.

Events are sent at a steady rate. A version of the table says how many are in it, and its commit
when: the n-th event is published with the first version that has n. In turn Tidemark, in one
process and in two, and a hand-written query take them, each alone, from a topic of one partition,
on one engine. Then a backlog is waiting: what each takes of it in a second, its start included, is
the rate that it sustains.
Tidemark's has two expectations, a late table and a log; the query by hand has none of these.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable
from rich.table import Table

from benchmarks import ways
from benchmarks.own import own_engine
from benchmarks.terminal import console
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.connect import free_port
from tidemark_streaming.kafka import broker

PATIENCE = 120.0
SENDING = 200_000
"""Events of a backlog that are sent in a second."""

Way = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Contender:
    """A way, the topic that it reads, and the table that it publishes."""

    title: str
    topic: str
    table: Path
    way: Way


@dataclass(frozen=True)
class Figures:
    """Of one contender at one rate: seconds from event to table; of a backlog, events a second.

    Args:
        memory: the most that the engine had of it while it took the backlog, in GB.
    """

    title: str
    rate: int
    p50: float | None = None
    p99: float | None = None
    sustained: float | None = None
    memory: float | None = None


class Versions:
    """How many events a table has had, and when."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._known: dict[int, tuple[float, int]] = {}

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        """When each version was committed, and how many events it has."""
        for file in sorted((self._table / "_delta_log").glob("*.json")):
            number = int(file.stem)
            if number not in self._known:
                rows = DeltaTable(self._table, version=number).to_pyarrow_table(columns=["events"])
                total = sum(rows["events"].to_pylist())
                self._known[number] = (file.stat().st_mtime, total)
        told = np.array([self._known[n] for n in sorted(self._known)]).reshape(-1, 2)
        return told[:, 0], told[:, 1]

    def total(self) -> int:
        _, totals = self.look()
        return int(totals[-1]) if len(totals) else 0

    def await_total(self, total: int) -> None:
        """Wait until all events are there, and none twice."""
        deadline = time.monotonic() + PATIENCE + total / 10_000
        while (found := self.total()) < total:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._table.name}: {found:,} of {total:,} events came.")
            time.sleep(1)
        if found > total:
            raise RuntimeError(f"{self._table.name}: {found:,} events are there, of {total:,}.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000, 50_000])
    parser.add_argument("--seconds", type=float, default=30, help="measured at each rate")
    parser.add_argument("--warming", type=float, default=15, help="seconds before these")
    parser.add_argument("--backlog", type=int, default=3_000_000, help="events that wait")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine("4g") as settings:
        settings = settings.model_copy(update={"kafka_port": free_port()})
        try:
            broker.start(settings, console.print)
            figures = [f for c in _contenders(settings) for f in _measured(settings, c, given)]
        finally:
            broker.process(settings).stop()
    console.print(_table(figures))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(f) for f in figures], indent=2) + "\n")
    return 0


def _contenders(settings: Settings) -> list[Contender]:
    mine, hand = ways.published(settings), settings.home / "by_hand"
    found = [
        Contender("Tidemark, direct", ways.SOURCE, mine, lambda: ways.direct(settings)),
        Contender(
            "Tidemark, ingest and stream", ways.SOURCE, mine, lambda: ways.streamed(settings)
        ),
        Contender("by hand", "by_hand", hand, lambda: ways.by_hand(settings, "by_hand", hand)),
    ]
    admin = AdminClient({"bootstrap.servers": broker.address(settings)})
    for made in admin.create_topics([NewTopic(t, 1, 1) for t in {c.topic for c in found}]).values():
        made.result()
    return found


def _measured(settings: Settings, contender: Contender, given: argparse.Namespace) -> list[Figures]:
    versions, found = Versions(contender.table), list[Figures]()
    with contender.way():
        for rate in given.rates:
            with console.status(f"{contender.title}: {rate:,} events a second"):
                _take(settings, contender, versions, rate, given.warming)
                before, sent = _take(settings, contender, versions, rate, given.seconds)
            at, totals = versions.look()
            first = np.searchsorted(totals, before + 1 + np.arange(len(sent)))
            p50, p99 = np.percentile(at[first] - sent, [50, 99])
            found.append(Figures(contender.title, rate, round(float(p50), 3), round(float(p99), 3)))
            console.print(found[-1])
    if given.backlog:
        with console.status(f"{contender.title}: a backlog"):
            before = versions.total()
            sent = _sent(settings, contender.topic, SENDING, given.backlog / SENDING)
            record = engine.Managed(settings.home, "engine").running()
            assert record is not None
            proc = Path("/proc", str(record.pid))
            # Counts the peak anew.
            (proc / "clear_refs").write_text("5")
            begun = time.time()
            with contender.way():
                versions.await_total(before + len(sent))
            kilobytes = re.findall(r"VmHWM:\s+(\d+)", (proc / "status").read_text())[0]
        at, _ = versions.look()
        rate = len(sent) / (at[-1] - begun)
        memory = round(int(kilobytes) / 1e6, 1)
        sustained = round(float(rate))
        found.append(Figures(contender.title, 0, sustained=sustained, memory=memory))
        console.print(found[-1])
    return found


def _take(
    settings: Settings, contender: Contender, versions: Versions, rate: int, seconds: float
) -> tuple[int, np.ndarray]:
    """Send events and wait for them; how many there were before, and when each was sent."""
    before = versions.total()
    sent = _sent(settings, contender.topic, rate, seconds)
    versions.await_total(before + len(sent))
    return before, sent


def _sent(settings: Settings, topic: str, rate: int, seconds: float) -> np.ndarray:
    file = settings.home / "sent.npy"
    told = [broker.address(settings), topic, str(rate), str(seconds), str(file)]
    subprocess.run([sys.executable, "-m", "benchmarks.load", *told], check=True)
    return np.load(file)


def _table(figures: list[Figures]) -> Table:
    peers = {f.rate: f for f in figures if f.title == "by hand"}
    told = Table(title="from an event in Kafka to its window in Delta")
    for column in (
        "",
        "events/s",
        "p50 s",
        "of by hand",
        "p99 s",
        "sustained /s",
        "of by hand",
        "GB",
    ):
        told.add_column(column, justify="left" if not column else "right")
    for f in figures:
        peer = peers.get(f.rate)
        share = f"{f.p50 / peer.p50:.2f} x" if f.p50 and peer and peer.p50 else ""
        rates = (
            f"{f.sustained / peer.sustained:.2f} x"
            if f.sustained and peer and peer.sustained
            else ""
        )
        cells = (
            f.p50 or "",
            share,
            f.p99 or "",
            f"{f.sustained:,.0f}" if f.sustained else "",
            rates,
            f.memory or "",
        )
        told.add_row(f.title, f"{f.rate:,}" if f.rate else "backlog", *map(str, cells))
    return told


if __name__ == "__main__":
    sys.exit(main())
