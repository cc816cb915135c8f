"""`python -m benchmarks.latency`: measure the time from an event in Kafka to its window in Delta.

Events are sent at a steady rate. Each version of the table has a total number of events, and a
commit time: event number n is published by the first version with n events or more. The contenders
are two ways to run Tidemark, and two hand-written queries. Only one contender runs at a time. It
reads a topic with one partition, and all contenders share the engine. All are warmed up first. Then
there are rounds, each of which starts with a different contender. Further rounds measure a backlog:
the rate at which a contender processes the backlog, with and without the contender's start.
Finally, the windows of each contender are compared with the events that were sent.

Tidemark has an event log, a late table, and two expectations. One of the hand-written queries has
none of these features, and the other has all of them but the event log.
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

from benchmarks import aging
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
"""The number of events per second at which a backlog is sent."""

CONTENDERS = ("direct", "streamed", "by hand", "by hand, with checks")
_PEERS = ("by hand", "by hand, with checks")


@dataclass(frozen=True)
class Contender:
    """A contender.

    Args:
        sent: the events that were sent to the contender's topic.
        versions: the versions of the table that the contender publishes.
        way: starts the contender for the duration of a `with` block.
        figures: the figures so far.
    """

    sent: Sent
    versions: Versions
    way: Callable[[], AbstractContextManager[ways.Way]]
    figures: Figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--rates", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    parser.add_argument("--seconds", type=float, default=30, help="measured at each rate")
    parser.add_argument("--warming", type=float, default=10, help="seconds to warm up at each rate")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backlog", type=int, default=3_000_000, help="number of events")
    parser.add_argument(
        "--aging",
        type=int,
        metavar="MINUTES",
        help="instead: the first contender for so long, at the first rate, minute by minute",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with own_engine("4g") as settings:
        settings = settings.model_copy(update={"kafka_port": free_port()})
        try:
            broker.start_broker(settings, console.print)
            found = _contenders(settings, given.contenders)
            if given.aging:
                return _age(settings, found[0], given)
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
        console.print(f"{f.title}: {f.differing} windows differ from the sent events.")
    return int(any(f.differing for f in figures))


def _age(settings: Settings, contender: Contender, given: argparse.Namespace) -> int:
    rate: int = given.rates[0]
    with contender.way() as way:
        _take(contender, rate, given.warming)
        minutes = aging.bench(
            lambda: _take(contender, rate, 60),
            lambda: len(contender.versions.look()[0]),
            way.processes,
            _engine_process(settings),
            given.aging,
        )
    console.print(aging.table(minutes))
    if given.json is not None:
        given.json.write_text(json.dumps([vars(minute) for minute in minutes], indent=2) + "\n")
    differing = contender.sent.differing(contender.versions.table)
    console.print(f"{differing} windows differ from the sent events.")
    return int(differing > 0)


def _engine_process(settings: Settings) -> int:
    record = engine.ManagedProcess(settings.home, "engine").find_running()
    assert record is not None
    return record.pid


def _contenders(settings: Settings, names: list[str]) -> list[Contender]:
    admin, found = (
        AdminClient({"bootstrap.servers": broker.broker_address(settings)}),
        list[Contender](),
    )
    topics = dict[str, Sent]()
    for name in names:
        topic = re.sub(r"\W+", "_", name) if name in _PEERS else ways.SOURCE
        if topic not in topics:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
            topics[topic] = Sent(settings, topic)
        hand = settings.home / topic
        opened: dict[str, Callable[[], AbstractContextManager[ways.Way]]] = {
            "direct": lambda: ways.direct(settings),
            "streamed": lambda: ways.stream(settings),
            "by hand": lambda topic=topic, hand=hand: ways.by_hand(settings, topic, hand),
            "by hand, with checks": lambda topic=topic, hand=hand: ways.by_hand_with_checks(
                settings, topic, hand
            ),
        }
        table = hand if name in _PEERS else ways.published_table(settings)
        figures = Figures(name, peer=name in _PEERS)
        found.append(Contender(topics[topic], Versions(table), opened[name], figures))
    return found


def _measure(settings: Settings, contenders: list[Contender], given: argparse.Namespace) -> None:
    for contender in contenders:
        with _show_status(contender, "warming up"), contender.way():
            for rate in given.rates or [SENDING]:
                _take(contender, rate, given.warming)
    for n in range(given.rounds if given.rates else 0):
        for contender in _rotate(contenders, n):
            with contender.way():
                for rate in given.rates:
                    with _show_status(contender, f"{rate:,} events a second"):
                        _take(contender, rate, given.warming)
                        seconds = _take(contender, rate, given.seconds)
                    contender.figures.seconds.setdefault(rate, []).append(seconds)
                    p50, p99 = np.percentile(seconds, [50, 99])
                    console.print(f"{contender.figures.title}, {rate:,}: {p50:.2f} {p99:.2f}")
    for n in range(given.rounds if given.backlog else 0):
        for contender in _rotate(contenders, n):
            with _show_status(contender, "a backlog"):
                _catch_up(settings, contender, given.backlog)
            f = contender.figures
            console.print(f"{f.title}: {f.rates[-1]:,.0f} a second, {f.running[-1]:,.0f}")
    for contender in contenders:
        contender.figures.differing = contender.sent.differing(contender.versions.table)


def _rotate(contenders: list[Contender], by: int) -> list[Contender]:
    return [contenders[(n + by) % len(contenders)] for n in range(len(contenders))]


def _take(contender: Contender, rate: int, seconds: float) -> Seconds:
    """Send events, wait until all are published, and return the latency of each, in seconds."""
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
    """Send events, then start the contender and wait until it has processed all of them.

    Return the seconds including the start, the engine's peak memory, and the peak memory of the
    contender's own processes, both in GB.
    """
    contender.sent.send(rate, seconds)
    process = _engine_process(settings)
    _forget_peak(process)
    begun = time.time()
    with contender.way() as way:
        contender.versions.await_total(contender.sent.events)
        done = way.finish()
        memory = _peak([process]), _peak(way.processes)
    at, _ = contender.versions.look()
    return max(float(at[-1]), done) - begun, *memory


def _forget_peak(pid: int) -> None:
    Path("/proc", str(pid), "clear_refs").write_text("5")


def _peak(pids: Iterable[int]) -> float:
    """Return the peak memory of processes, in GB."""
    texts = (Path("/proc", str(pid), "status").read_text() for pid in pids)
    return sum(int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) for text in texts) / 1e6


@contextmanager
def _show_status(contender: Contender, what: str) -> Iterator[None]:
    with console.status(f"{contender.figures.title}: {what}"):
        yield


if __name__ == "__main__":
    sys.exit(main())
