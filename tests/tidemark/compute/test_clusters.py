"""Tests that session clusters merged by the engine equal the result of the replay."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0, Event, ingest
from helpers.suite.nightly import mostly_nightly
from tidemark.compute import pane_table, windowing
from tidemark.compute.lifecycle import clusters, session, session_workers
from tidemark.compute.lifecycle.session_replay import Fragment, Replay
from tidemark.compute.slot import ON_TIME
from tidemark.define import aggregates as agg
from tidemark.define.helper_columns import ADMITTED, WATERMARK_BEFORE
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Trigger
from tidemark.define.windows import Session
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.rows import compute as pc
from tidemark.store.warehouse import Warehouse

VISITS = replace(
    PER_MINUTE,
    name="visits",
    window=Session("20 seconds"),
    aggregates={"n": agg.count(), "total": agg.sum("price"), "seen": agg.collect("price")},
)
ARRIVALS = 8
LATE = [Trigger(), Trigger(late=Every("2 minutes"))]


@pytest.fixture(scope="module")
def log(shared: Warehouse) -> Log:
    """Return a log of many keys: some have plain sessions, others late or already fired ones."""
    chance = random.Random(5)

    def event(now: int) -> Event:
        key = chance.choice("abcdefghijklmnopqrst")
        age = chance.random() * (40 if key < "n" else 260)
        return Event(now - int(age * 1_000_000), key, round(chance.random(), 2))

    arrivals = [[event(T0 + n * MINUTE) for _ in range(60)] for n in range(ARRIVALS)]
    ingest(shared, READINGS, arrivals)
    return Log(shared, READINGS)


def coverage(log: Log, arrival: int) -> Coverage:
    (found,) = log.read_timeline(arrival - 1, arrival)
    return Coverage(TimelinePosition(arrival, found.after, found.arrived_at))


def rows(frame: DataFrame) -> Counter[str]:
    found = [r.asDict(recursive=True) for r in frame.collect()]
    for row in found:
        row["seen"] = sorted(row["seen"], key=str)
    return Counter(str(sorted(r.items())) for r in found)


# Every kind of cluster, in the engine and in memory.
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("trigger", LATE[::-1], ids=str)
@pytest.mark.parametrize("arrival", mostly_nightly([ARRIVALS, 5]))
def test_clusters_merged_by_the_engine_equal_the_replay(
    monkeypatch: pytest.MonkeyPatch, log: Log, trigger: Trigger, arrival: int
) -> None:
    transform = replace(VISITS, trigger=trigger, accumulation="discarding")
    seen, before = coverage(log, arrival), coverage(log, arrival - 1)
    stored = windowing.count_scope(log, transform, Scope.from_coverage(seen))
    at, then = windowing.as_of(seen), windowing.as_of(before)

    def answers() -> list[Counter[str]]:
        return [
            rows(windowing.finish_windows(stored, transform, log, at)),
            rows(session.compute_changes(stored, transform, log, at, then)),
            *(
                rows(
                    pane_table.compute_panes(
                        stored, replace(transform, accumulation=a), log, at, then
                    )
                )
                for a in ("discarding", "accumulating", "retracting")
            ),
        ]

    merged = answers()
    together = clusters.add_clusters(stored, transform).groupBy("sensor", clusters.CLUSTER_START)
    kinds = {r[0] for r in together.agg(clusters.is_plain().alias("p")).select("p").collect()}
    assert kinds == {True, False}
    for module in (session, session_workers):
        monkeypatch.setattr(module, "is_plain", lambda *_: F.lit(False))
    assert answers() == merged
    assert all(merged)


def fragments(chance: random.Random) -> list[Fragment]:
    """Return one key's fragments with a gap of 10, on a coarse grid, in order of arrival."""
    watermark, found = None, list[Fragment]()
    now = 0
    for arrival in range(chance.randint(1, 5)):
        before = watermark
        now += chance.choice([0, 5, 10, 20])
        for _ in range(chance.randint(1, 3)):
            start = now - chance.choice([0, 0, 5, 10, 15, 20, 30])
            end = start + chance.choice([10, 10, 15, 25])
            found.append(
                Fragment(start, end, arrival, len(found), before, None, None, None, None, None)
            )
        if chance.random() < 0.8:
            watermark = max(now - chance.choice([0, 5, 10, 20]), -100 if before is None else before)
    return found


def alone(cluster: list[Fragment], watermark: int | None) -> bool:
    """Return whether the replay of a cluster gives exactly one on-time firing."""
    end = max(f.end for f in cluster)
    fired = Replay(cluster, Trigger(), 1_000).replay_through(99, watermark)
    if watermark is None or watermark < end:
        return not fired
    shapes = [(f.start, f.end, f.pane, f.phase, f.members) for f in fired]
    start = min(f.start for f in cluster)
    return shapes == [(start, end, 0, ON_TIME, tuple(range(len(cluster))))]


def test_a_plain_cluster_fires_once_and_on_time(spark: SparkSession) -> None:
    chance = random.Random(11)
    histories = [fragments(chance) for _ in range(3_000)]
    told = [
        (n, f.start, f.end, f.before, i) for n, h in enumerate(histories) for i, f in enumerate(h)
    ]
    frame = spark.createDataFrame(
        told, f"sensor BIGINT, start BIGINT, end BIGINT, {WATERMARK_BEFORE} BIGINT, place INT"
    ).withColumns(
        {
            "window_start": F.timestamp_micros("start"),
            "window_end": F.timestamp_micros("end"),
            ADMITTED: F.lit(True),
        }
    )
    found = clusters.add_clusters(frame, VISITS).groupBy("sensor", clusters.CLUSTER_START)
    judged = found.agg(clusters.is_plain().alias("plain"), F.collect_list("place").alias("places"))
    seen: Counter[tuple[bool, bool]] = Counter()
    replayed = set[int]()
    for row in judged.collect():
        if not row["plain"]:
            replayed.add(row["sensor"])
        cluster = [histories[row["sensor"]][i] for i in sorted(row["places"])]
        # With the watermark at the end, and without a watermark.
        really = alone(cluster, max(f.end for f in cluster)) and alone(cluster, None)
        seen[(row["plain"], really)] += 1
        assert really or not row["plain"], cluster
    assert seen[(True, True)] > 1_000
    assert seen[(False, False)] > 300
    # A plain cluster may be classified as not plain: it is then replayed, at a small cost.
    assert seen[(False, True)] < 0.1 * seen[(True, True)]
    in_memory = fetch_dataframe(frame)
    for number in range(len(histories)):
        of_sensor = in_memory.filter(pc.equal(in_memory["sensor"], number))
        assert clusters.are_all_plain(of_sensor, VISITS) == (number not in replayed)


def test_close_events_of_an_arrival_share_a_fragment(log: Log) -> None:
    seen = coverage(log, ARRIVALS)
    single = replace(VISITS, trigger=Trigger(late=Count(1_000)))

    def counted(transform: WindowedTransform) -> dict[str, Any]:
        return (
            windowing.count_scope(log, transform, Scope.from_coverage(seen))
            .agg(F.count("*").alias("fragments"), F.sum("events").alias("events"))
            .collect()[0]
            .asDict()
        )

    apart, together = counted(single), counted(VISITS)
    assert together["events"] == apart["events"]
    assert together["fragments"] < 0.8 * apart["fragments"]


@pytest.mark.parametrize("trigger", [Trigger(), Trigger(early=EachArrival())], ids=str)
def test_a_long_session_is_replayed_quickly(trigger: Trigger) -> None:
    """A hot key has 100,000 arrivals, each of which extends one session."""
    count = 100_000
    hot = [Fragment(n, n + 10, n, 0, n - 20, n - 19, *[None] * 4) for n in range(count)]
    # A fragment of another session.
    hot[50] = Fragment(2_000_000, 2_000_010, 50, 0, 30, 31, *[None] * 4)
    replay = Replay(hot, trigger, 10**9)
    fired = replay.replay_through(count, 10**9)
    (whole,) = [f for f in replay.find_live_firings() if f.start == 0]
    assert len(whole.members) == count - 1
    assert len(fired) == (count + 2 if trigger.fires_early else 2)
