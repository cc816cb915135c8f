"""`python -m benchmarks.latency`: from an event in Kafka to its window in a Delta table.

Events are sent at a steady rate. A version of the table says how many are in it, and its commit
when: the n-th event is published with the first version that has n. Tidemark's ways and queries by
hand take them, each alone, from a topic of one partition, on one engine. Each is warmed up before
any is measured; then they are measured in rounds, each of which another one begins. In the rounds
after these a backlog is waiting: what each takes of it in a second is the rate that it sustains,
with its start, and without the time from its start to a first event that waits for it. In the end
the windows of each are compared with what was sent.

Tidemark's ways have a log, a late table and two expectations. Of the queries by hand one has none
of these, and one all but the log.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.inputs.sent import Sent
from benchmarks.measuring.figures import Figures, Seconds, backlogs, latencies
from benchmarks.measuring.own import own_engine
from benchmarks.measuring.terminal import console
from benchmarks.measuring.versions import Versions
from benchmarks.peers import ways
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_streaming.kafka import broker

SENDING = 200_000
"""Events of a backlog that are sent in a second."""

CONTENDERS = ("direct", "streamed", "by hand", "dutiful")
_PEERS = ("by hand", "dutiful")


@dataclass(frozen=True)
class Contender:
    """A way, what its topic was sent, the table that it publishes, and what came of it."""

    sent: Sent
    versions: Versions
    way: Callable[[], AbstractContextManager[ways.Way]]
    figures: Figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--rates", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    parser.add_argument("--seconds", type=float, default=30, help="measured at each rate")
    parser.add_argument("--warming", type=float, default=10, help="seconds before these")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backlog", type=int, default=3_000_000, help="events that wait")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine("4g") as settings:
        settings = settings.model_copy(update={"kafka_port": free_port()})
        try:
            broker.start(settings, console.print)
            found = _contenders(settings, given.contenders)
            _measure(settings, found, given)
        finally:
            broker.broker_process(settings).stop()
    figures = [c.figures for c in found]
    if given.rates:
        console.print(latencies(figures, given.rates))
    if given.backlog:
        console.print(backlogs(figures, given.backlog))
    if given.json is not None:
        given.json.write_text(json.dumps([f.plain() for f in figures], indent=2) + "\n")
    for f in figures:
        console.print(f"{f.title}: {f.differing} windows differ from what was sent.")
    return int(any(f.differing for f in figures))


def _contenders(settings: Settings, names: list[str]) -> list[Contender]:
    admin, found = AdminClient({"bootstrap.servers": broker.address(settings)}), list[Contender]()
    topics = dict[str, Sent]()
    for name in names:
        topic = name.replace(" ", "_") if name in _PEERS else ways.SOURCE
        if topic not in topics:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
            topics[topic] = Sent(settings, topic)
        hand = settings.home / topic
        opened: dict[str, Callable[[], AbstractContextManager[ways.Way]]] = {
            "direct": lambda: ways.direct(settings),
            "streamed": lambda: ways.streamed(settings),
            "by hand": lambda topic=topic, hand=hand: ways.by_hand(settings, topic, hand),
            "dutiful": lambda topic=topic, hand=hand: ways.dutiful(settings, topic, hand),
        }
        table = hand if name in _PEERS else ways.published(settings)
        figures = Figures(name, peer=name in _PEERS)
        found.append(Contender(topics[topic], Versions(table), opened[name], figures))
    return found


def _measure(settings: Settings, contenders: list[Contender], given: argparse.Namespace) -> None:
    for contender in contenders:
        with _shown(contender, "warming up"), contender.way():
            for rate in given.rates or [SENDING]:
                _take(contender, rate, given.warming)
    for n in range(given.rounds if given.rates else 0):
        for contender in _rotated(contenders, n):
            with contender.way():
                for rate in given.rates:
                    with _shown(contender, f"{rate:,} events a second"):
                        _take(contender, rate, given.warming)
                        seconds = _take(contender, rate, given.seconds)
                    contender.figures.seconds.setdefault(rate, []).append(seconds)
                    p50, p99 = np.percentile(seconds, [50, 99])
                    console.print(f"{contender.figures.title}, {rate:,}: {p50:.2f} {p99:.2f}")
    for n in range(given.rounds if given.backlog else 0):
        for contender in _rotated(contenders, n):
            with _shown(contender, "a backlog"):
                _catch_up(settings, contender, given.backlog)
            f = contender.figures
            console.print(f"{f.title}: {f.rates[-1]:,.0f} a second, {f.running[-1]:,.0f}")
    for contender in contenders:
        contender.figures.differing = contender.sent.differing(contender.versions.table)


def _rotated(contenders: list[Contender], by: int) -> list[Contender]:
    return [contenders[(n + by) % len(contenders)] for n in range(len(contenders))]


def _take(contender: Contender, rate: int, seconds: float) -> Seconds:
    """Send events and wait for them: how long each took, in seconds."""
    before, sent = contender.sent.events, contender.sent.send(rate, seconds)
    contender.versions.await_total(contender.sent.events)
    at, totals = contender.versions.look()
    first = np.searchsorted(totals, before + 1 + np.arange(len(sent)))
    return at[first] - sent


def _catch_up(settings: Settings, contender: Contender, events: int) -> None:
    start, _, _ = _caught_up(settings, contender, 1_000, 0.05)
    took, engine_, own = _caught_up(settings, contender, SENDING, events / SENDING)
    f = contender.figures
    f.rates.append(events / took)
    f.running.append(events / (took - start))
    f.engine, f.own = max(f.engine, engine_), max(f.own, own)


def _caught_up(
    settings: Settings, contender: Contender, rate: int, seconds: float
) -> tuple[float, float, float]:
    """Events wait, and are taken: how long that took with the start, and the most memory that the
    engine and the way's own processes had meanwhile."""
    contender.sent.send(rate, seconds)
    record = engine.ManagedProcess(settings.home, "engine").running()
    assert record is not None
    _forget_peak(record.pid)
    begun = time.time()
    with contender.way() as way:
        contender.versions.await_total(contender.sent.events)
        done = way.finish()
        memory = _peak([record.pid]), _peak(way.processes)
    at, _ = contender.versions.look()
    return max(float(at[-1]), done) - begun, *memory


def _forget_peak(pid: int) -> None:
    Path("/proc", str(pid), "clear_refs").write_text("5")


def _peak(pids: Iterable[int]) -> float:
    """The most memory that processes had, in GB."""
    told = (Path("/proc", str(pid), "status").read_text() for pid in pids)
    return sum(int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) for text in told) / 1e6


@contextmanager
def _shown(contender: Contender, what: str) -> Iterator[None]:
    with console.status(f"{contender.figures.title}: {what}"):
        yield


if __name__ == "__main__":
    sys.exit(main())
