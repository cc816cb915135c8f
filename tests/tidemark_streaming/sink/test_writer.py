"""A consumer of the topic has the published table, after any failure on the way."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaException
from deltalake import DeltaTable

from helpers.data.recorded import Played, Recorded
from helpers.data.support import PER_MINUTE
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.topics import Topics
from helpers.processes.clocks import shift_clock
from helpers.processes.dying import parent
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import ConflictError, DataError, DefinitionError, TidemarkError
from tidemark.base.instants import format_instant
from tidemark.base.secret import secret
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.store.asset import Asset
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink import PublishResult, SinkWriter
from tidemark_streaming.sink import follow as following
from tidemark_streaming.sink.writer import sink_status

MINUTES = Tumbling("1 minute")
WINDOWS = [MINUTES, Sliding("1 minute", "20 seconds"), Session("20 seconds")]
ACCUMULATIONS = ["accumulating", "discarding", "retracting"]


@pytest.fixture
def played(recording: Callable[[Window], Recorded], tmp_path: Path) -> Played:
    """Return an asset with windows of one minute, before its first run."""
    return recording(MINUTES).play(tmp_path)


def emitting(topics: Topics, played: Played, accumulation: str) -> WindowedTransform:
    """Return the asset with a sink to a topic that does not exist yet."""
    return played.to(KafkaSink(topics.unused(), topics.servers, partitions=2), accumulation)


def topic_of(asset: WindowedTransform) -> KafkaSink:
    assert isinstance(asset.sink, KafkaSink)
    return asset.sink


def told(topics: Topics, asset: WindowedTransform) -> list[dict[str, Any]]:
    """Return the panes in the topic."""
    found = records(topics.servers, topic_of(asset).name)
    return [value for _, _, value in found if "reset" not in value]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table with instants in the format of the records."""
    return {
        name: format_instant(round(value.timestamp() * 1e6))
        if hasattr(value, "timestamp")
        else value
        for name, value in row.items()
    }


def place(told: dict[str, Any]) -> tuple[Any, ...]:
    """Return the window of a record, or of a row from `shown`."""
    keys = told["keys"] if "keys" in told else {"sensor": told["sensor"]}
    return (told["window_start"], told["window_end"], keys["sensor"])


def assert_same(
    played: Played, topics: Topics, asset: WindowedTransform, *, committed: bool = True
) -> None:
    """Assert that the topic equals the published table, row by row and column by column.

    Args:
        committed: read only committed records; otherwise all records, each key once.
    """
    table = Table(str(asset.accumulation), ("n", "high"), once=not committed)
    for record in records(topics.servers, topic_of(asset).name, committed=committed):
        table.take(*record)
    there = {
        place(r): r
        for r in map(shown, played.warehouse.load_rows(asset.published_table).to_pylist())
    }
    assert table.rows.keys() == there.keys()
    for window, row in there.items():
        got = table.rows[window]
        assert got["values"] == {name: row[name] for name in asset.aggregates}, window
        for ours, theirs in (("pane", "revision"), ("last", "final"), *((c, c) for c in SAME)):
            assert got[ours] == row[theirs], (window, ours)


SAME = ("events", "late_events", "timing", "last_arrival", "as_of", "commit_number", "quality")


# Publishes a table to a broker, for each kind of window.
@pytest.mark.slow
@pytest.mark.parametrize("window", mostly_nightly(WINDOWS[::-1]), ids=str)
def test_the_topic_equals_the_published_table(
    recording: Callable[[Window], Recorded], tmp_path: Path, topics: Topics, window: Window
) -> None:
    for accumulation in ACCUMULATIONS:
        # Publish after each run. If panes may have expired by then, also publish after three runs
        # and then the rest.
        cuts = [[1] * 100, [3, 100]]
        for number, cut in enumerate(cuts if accumulation == "discarding" else cuts[:1]):
            played = recording(window).play(tmp_path / f"{accumulation}-{number}")
            asset = emitting(topics, played, accumulation)
            assert SinkWriter(played.warehouse, asset).publish_changes().transactions == 1
            for runs in cut:
                if not played.run(runs):
                    break
                # A new publisher each time, which finds its position only in the topic.
                SinkWriter(played.warehouse, asset).publish_changes()
                assert_same(played, topics, asset)
                assert SinkWriter(played.warehouse, asset).publish_changes().transactions == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_discarding_panes_have_only_the_events_of_their_firing(
    played: Played, topics: Topics
) -> None:
    """A window that fires again publishes each firing as in the table of panes."""
    asset = emitting(topics, played, "discarding")
    writer = SinkWriter(played.warehouse, asset)
    before: list[dict[str, Any]] = []
    firings = Counter[int]()
    while played.run():
        writer.publish_changes()
        sent = told(topics, asset)
        new = [pane for pane in sent if pane not in before]
        went_on = {place(p) for p in before} - {place(p) for p in new if p["retraction"]}
        parts = {
            (place(p), p["commit_number"], p["pane"]): p["values"]
            for p in new
            if place(p) in went_on and p["values"]
        }
        of = {key[:2] for key in parts}
        fired = {
            (place(r), r["commit_number"], r["pane"]): {"n": r["n"], "high": r["high"]}
            for r in map(shown, played.warehouse.load_rows(asset.panes_table).to_pylist())
            if (place(r), r["commit_number"]) in of
        }
        assert parts == fired
        firings.update(Counter(key[:2] for key in parts).values())
        before = sent
    assert {1, 2} <= set(firings)
    runs = {
        marker.commit_number: marker.run
        for marker in Asset(played.warehouse, asset).state.read_commits_after(-1)
    }
    assert all(pane["run"] == runs[pane["commit_number"]] for pane in before)


# Runs once for each fail point.
@pytest.mark.slow
def test_after_a_kill_at_any_fail_point_the_next_publisher_resumes(
    played: Played, topics: Topics, tmp_path: Path
) -> None:
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run()
    seen = [SinkWriter(played.warehouse, asset).publish_changes().records]
    played.run(100)
    with parent(tmp_path) as process:
        for step, more in (("send", 0), ("sent", 1), ("committed", 1), ("send", 0), ("sent", 1)):
            process.begin(played, asset, step)
            assert process.ended() == -signal.SIGKILL
            seen.append(len(records(topics.servers, name, committed=False)))
            assert (seen[-1] > seen[-2]) == more, (step, seen)
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    assert_same(played, topics, asset, committed=False)
    # The records of the second and the fifth process were aborted.
    assert len(records(topics.servers, name)) < len(records(topics.servers, name, committed=False))


# Starts and kills many processes.
@pytest.mark.nightly
@pytest.mark.slow
def test_after_a_kill_at_any_instant_the_next_publisher_resumes(
    played: Played, topics: Topics, tmp_path: Path
) -> None:
    asset, chance = emitting(topics, played, "discarding"), random.Random(5)
    ends = Counter[int]()
    with parent(tmp_path) as process:
        while played.run():
            # A process that ends before its instant is not killed.
            with suppress(psutil.NoSuchProcess):
                child = psutil.Process(process.begin(played, asset))
                time.sleep(chance.random() * 0.4)
                child.kill()
            ends[process.ended()] += 1
    assert ends[-signal.SIGKILL] > 0, ends
    assert set(ends) <= {0, -signal.SIGKILL}, ends
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    assert_same(played, topics, asset, committed=False)


def test_a_replaced_publisher_is_fenced(played: Played, topics: Topics) -> None:
    asset = emitting(topics, played, "accumulating")
    played.run()
    zombie = SinkWriter(played.warehouse, asset)
    zombie.publish_changes()
    played.run()
    SinkWriter(played.warehouse, asset).publish_changes()
    played.run()
    with pytest.raises(ConflictError, match="Another process now publishes 'per_minute'"):
        zombie.publish_changes()
    zombie.publish_changes()
    assert_same(played, topics, asset)


def test_a_topic_accepts_an_asset_of_one_database_only(
    recording: Callable[[Window], Recorded], tmp_path: Path, topics: Topics
) -> None:
    """An asset of the same name in another database is refused without writing, until it takes over
    the topic with --reset. This includes a publisher that polled before the topic had positions."""
    one, other = (recording(MINUTES).play(tmp_path / name) for name in ("one", "other"))
    asset = emitting(topics, one, "retracting")
    for played in (one, other):
        played.run()
    theirs = SinkWriter(other.warehouse, asset)
    theirs._channel.open_producer()
    ours = SinkWriter(one.warehouse, asset)
    ours.publish_changes()
    with pytest.raises(ConflictError):
        theirs.publish_changes()
    sentence = (
        rf"windows of 'per_minute' from another database, .*/one/{one.database}\. .* --reset`\.$"
    )
    for emit in (theirs.publish_changes, SinkWriter(other.warehouse, asset).publish_changes):
        with pytest.raises(DefinitionError, match=sentence):
            emit()
    with pytest.raises(DefinitionError, match=sentence):
        sink_status(other.warehouse, asset)
    one.run()
    ours.publish_changes()
    assert_same(one, topics, asset)
    SinkWriter(other.warehouse, asset).publish_changes(reset=True)
    one.run()
    with pytest.raises(ConflictError):
        ours.publish_changes()
    with pytest.raises(DefinitionError, match=r"from another database, .*/other/"):
        ours.publish_changes()
    assert_same(other, topics, asset)


def test_a_new_epoch_replaces_everything_before_it(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run()
    writer = SinkWriter(played.warehouse, asset)
    writer.publish_changes()
    # Epochs follow the clock and still increase if the clock was set back.
    shift_clock(monkeypatch, -1)
    # Start epochs by hand, after adding partitions, after the history expired, and after recreating
    # the topic.
    writer.publish_changes(reset=True)
    assert_same(played, topics, asset)
    topics.grow(name, 3)
    played.run()
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    played.run(2)
    played.warehouse.write_checkpoint(asset.published_table, removes_expired=False)
    for commit in played.logs[0].glob("*.json"):
        commit.unlink()
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    epochs = [(p, v["epoch"]) for p, _, v in records(topics.servers, name)]
    assert len({epoch for _, epoch in epochs}) == 4
    assert epochs == sorted(epochs)
    topics.delete(name)
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_table_recreated_during_publishing_starts_one_epoch(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds if the table was read before that, and the new table has fewer versions."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    SinkWriter(played.warehouse, asset).publish_changes()
    played.run()
    before = played.warehouse.find_head(asset.published_table)
    played.begin()
    played.anew(asset.published_table, asset.state_table)
    played.run()
    warehouse, looks = played.warehouse, iter([before] * 2)
    look = warehouse.find_head
    monkeypatch.setattr(
        warehouse,
        "head",
        lambda table: (
            next(looks, None) or look(table) if table == asset.published_table else look(table)
        ),
    )
    writer = SinkWriter(warehouse, asset)
    send, sent = writer._channel.send_transaction, list[int]()

    def counted(*given: Any) -> int:  # noqa: ANN401
        assert len(sent) < 3
        sent.append(send(*given))
        return sent[-1]

    monkeypatch.setattr(writer._channel, "send_transaction", counted)
    assert writer.publish_changes().transactions == 1
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, topic_of(asset).name)}) == 2
    assert SinkWriter(played.warehouse, asset).publish_changes().transactions == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_a_recreated_state_table_starts_an_epoch(played: Played, topics: Topics) -> None:
    """This is the result of a killed drop, which deletes the state table first."""
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run(2)
    SinkWriter(played.warehouse, asset).publish_changes()
    state = played.folder / played.database / asset.state_table
    state.rename(played.folder / "away")
    played.run()
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, name)}) == 1
    (played.folder / "away").rename(state)
    played.anew(asset.state_table)
    for commit in (state / "_delta_log").glob("*.json"):
        if int(commit.stem) > 1:
            commit.unlink()
    played.run()
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, name)}) == 2
    played.run()
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, name)}) == 2


def test_the_status_of_a_recreated_topic_is_empty(played: Played, topics: Topics) -> None:
    asset = emitting(topics, played, "accumulating")
    name, table = topic_of(asset).name, asset.published_table
    played.run(3)
    SinkWriter(played.warehouse, asset).publish_changes()
    head = played.warehouse.find_head(table)
    assert head is not None
    topics.settled(topic_of(asset).positions_topic)
    assert sink_status(played.warehouse, asset).behind == 0
    topics.delete(name)
    topics.create(2, name)
    found = sink_status(played.warehouse, asset)
    assert (found.version, found.behind, found.run) == (-1, head.version + 1, None)
    assert found.since == played.warehouse.committed_at(table, 0)
    # The missing versions are older than the oldest commit in the transaction log, so the lag
    # counts from that commit.
    played.warehouse.write_checkpoint(table, removes_expired=False)
    for version in range(head.version):
        (played.logs[0] / f"{version:020}.json").unlink()
    found = sink_status(played.warehouse, asset)
    assert found.since == played.warehouse.committed_at(table, head.version)
    topics.delete(name)
    assert sink_status(played.warehouse, asset).version == -1


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("made", ["by it", "by others"])
def test_a_following_publisher_fills_a_recreated_topic(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """This also holds if no further windows are published."""
    monkeypatch.setattr(following, "MAX_WAIT_SECONDS", 0.5)
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run(3)
    ended, out, failures = Event(), Queue[PublishResult](), list[TidemarkError]()
    given = (played.warehouse, asset, ended, out.put, failures.append)
    thread = Thread(target=following.follow_asset, args=given, daemon=True)
    thread.start()
    first = out.get(timeout=60)
    # The topic may exist again before any client has noticed its deletion.
    topics.admin.delete_topics([name])[name].result()
    if made == "by others":
        # The publisher may have created it first.
        with suppress(KafkaException):
            topics.create(2, name)
    assert out.get(timeout=60).records == first.records, failures
    ended.set()
    thread.join(60)
    assert_same(played, topics, asset)


@pytest.mark.nightly
@pytest.mark.slow
def test_deleting_the_positions_starts_an_epoch(played: Played, topics: Topics) -> None:
    """This also holds for a running publisher: its successor could not determine the position."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    writer = SinkWriter(played.warehouse, asset)
    writer.publish_changes()
    topics.delete(topic_of(asset).positions_topic)
    assert sink_status(played.warehouse, asset).version == -1
    assert writer.publish_changes().transactions == 1
    topics.settled(topic_of(asset).positions_topic)
    assert sink_status(played.warehouse, asset).behind == 0
    assert SinkWriter(played.warehouse, asset).publish_changes().transactions == 0
    assert_same(played, topics, asset)


def test_a_restored_table_starts_an_epoch(played: Played, topics: Topics) -> None:
    """As from a backup: the topic has rows that the table no longer has."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    writer = SinkWriter(played.warehouse, asset)
    writer.publish_changes()
    newest = sorted(played.logs[0].glob("*.json"))[-1]
    newest.rename(newest.with_suffix(".ahead"))
    writer.publish_changes()
    assert_same(played, topics, asset)
    newest.with_suffix(".ahead").rename(newest)
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    newest.rename(newest.with_suffix(".ahead"))
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, topic_of(asset).name)}) == 3


@pytest.mark.parametrize("passes", [False, True])
def test_another_commit_with_the_published_version_starts_an_epoch(
    played: Played, topics: Topics, passes: bool
) -> None:
    """As after a restore from a backup, and runs since then."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    SinkWriter(played.warehouse, asset).publish_changes()
    newest = sorted(played.logs[0].glob("*.json"))[-1]
    newest.rename(newest.with_suffix(".ahead"))
    table = DeltaTable(str(newest.parents[1]))
    table.delete("events > 1")
    if passes:
        table.delete("events > 0")
    SinkWriter(played.warehouse, asset).publish_changes()
    assert_same(played, topics, asset)


def test_another_assets_open_transaction_hides_no_position(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two assets share a topic, a hidden position would publish later windows twice."""
    asset = emitting(topics, played, "retracting")
    topic = topic_of(asset)
    played.run()
    before = SinkWriter(played.warehouse, asset)
    before.publish_changes()
    other = topics.producer(transactional_id="another")
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic.positions_topic, b"{}", b"another", 0)
    assert other.flush(30) == 0
    played.run()
    before.publish_changes()
    played.run()
    monkeypatch.setattr("tidemark_streaming.sink.transactional_topic.OPEN_TRANSACTION_SECONDS", 0.5)
    try:
        with pytest.raises(DataError, match="another asset's producer has an open") as caught:
            SinkWriter(played.warehouse, asset).publish_changes()
        assert caught.value.retriable
    finally:
        other.abort_transaction(30)
    assert SinkWriter(played.warehouse, asset).publish_changes().transactions == 1
    assert_same(played, topics, asset)


@pytest.mark.usefixtures("impatient")
def test_unreachable_brokers_are_reported(played: Played) -> None:
    quick = {"socket.connection.setup.timeout.ms": "1000"}
    played.run()
    asset = played.to(KafkaSink("panes", "127.0.0.1:1", client=quick), "accumulating")
    with pytest.raises(DataError, match=r"Kafka at 127.0.0.1:1 can't be "):
        SinkWriter(played.warehouse, asset).publish_changes()


def test_a_sink_needs_accumulation_and_a_valid_topic() -> None:
    with pytest.raises(DefinitionError, match="accumulation must be set"):
        replace(PER_MINUTE, sink=KafkaSink("departures"))
    with pytest.raises(DefinitionError, match="'a b' is not a valid topic name"):
        KafkaSink("a b")
    with pytest.raises(DefinitionError, match=r"at least 1 partition \(got 0\)"):
        KafkaSink("a", partitions=0)


def test_the_sink_does_not_change_the_fingerprint() -> None:
    asset = replace(PER_MINUTE, accumulation="accumulating")
    topic = KafkaSink("departures", client={"sasl.password": secret("env:NOBODYS")})
    assert compute_fingerprint(replace(asset, sink=topic)) == compute_fingerprint(asset)
    with pytest.raises(DefinitionError, match="Topic 'departures' has the value of sasl"):
        KafkaSink("departures", client={"sasl.password": "none-of-anybodys"})
