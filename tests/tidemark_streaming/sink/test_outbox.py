"""Who reads the topic has the published table, whatever happened on the way."""

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

from helpers.data.recorded import Played, Recorded
from helpers.data.support import PER_MINUTE
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.topics import Topics
from helpers.processes.clocks import shift_clock
from helpers.processes.dying import parent
from tidemark.base.errors import ConflictError, DataError, DefinitionError, TidemarkError
from tidemark.base.instants import iso
from tidemark.base.secret import secret
from tidemark.define.identity.fingerprint import fingerprint
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Sliding, Tumbling, Window
from tidemark.store.asset import Asset
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink import Outbox, PublishResult
from tidemark_streaming.sink import follow as following
from tidemark_streaming.sink.status import sink_status

MINUTES = Tumbling("1 minute")
WINDOWS = [MINUTES, Sliding("1 minute", "20 seconds"), Session("20 seconds")]
ACCUMULATIONS = ["accumulating", "discarding", "retracting"]


@pytest.fixture
def played(recording: Callable[[Window], Recorded], tmp_path: Path) -> Played:
    """An asset of minutes, before its first run."""
    return recording(MINUTES).play(tmp_path)


def emitting(topics: Topics, played: Played, accumulation: str) -> WindowedTransform:
    """The asset, publishing to a topic that is not there yet."""
    return played.to(KafkaSink(topics.unused(), topics.servers, partitions=2), accumulation)


def topic_of(asset: WindowedTransform) -> KafkaSink:
    assert isinstance(asset.sink, KafkaSink)
    return asset.sink


def told(topics: Topics, asset: WindowedTransform) -> list[dict[str, Any]]:
    """The panes that the topic has."""
    found = records(topics.servers, topic_of(asset).name)
    return [value for _, _, value in found if "reset" not in value]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A table's row, with instants as records have them."""
    return {
        name: iso(round(value.timestamp() * 1e6)) if hasattr(value, "timestamp") else value
        for name, value in row.items()
    }


def place(told: dict[str, Any]) -> tuple[Any, ...]:
    """The window of a record, or of a row that is `shown`."""
    keys = told["keys"] if "keys" in told else {"sensor": told["sensor"]}
    return (told["window_start"], told["window_end"], keys["sensor"])


def assert_same(
    played: Played, topics: Topics, asset: WindowedTransform, *, committed: bool = True
) -> None:
    """What the topic tells is the published table, row by row and column by column.

    Args:
        committed: read what was committed; otherwise all, each key once.
    """
    table = Table(str(asset.accumulation), ("n", "high"), once=not committed)
    for record in records(topics.servers, topic_of(asset).name, committed=committed):
        table.take(*record)
    there = {place(r): r for r in map(shown, played.warehouse.take(asset.table).to_pylist())}
    assert table.rows.keys() == there.keys()
    for window, row in there.items():
        got = table.rows[window]
        assert got["values"] == {name: row[name] for name in asset.aggregates}, window
        for ours, theirs in (("pane", "revision"), ("last", "final"), *((c, c) for c in SAME)):
            assert got[ours] == row[theirs], (window, ours)


SAME = ("events", "late_events", "timing", "last_arrival", "as_of", "commit_number", "quality")


# Follows a table to a broker, by each kind of window.
@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_topic_tells_the_published_table(
    recording: Callable[[Window], Recorded], tmp_path: Path, topics: Topics, window: Window
) -> None:
    for accumulation in ACCUMULATIONS:
        # After each run; and where panes may be gone by then, after three, and all that are left.
        cuts = [[1] * 100, [3, 100]]
        for number, cut in enumerate(cuts if accumulation == "discarding" else cuts[:1]):
            played = recording(window).play(tmp_path / f"{accumulation}-{number}")
            asset = emitting(topics, played, accumulation)
            assert Outbox(played.warehouse, asset).emit().transactions == 1
            for runs in cut:
                if not played.run(runs):
                    break
                # Another one each time, which finds where it stands in the topic alone.
                Outbox(played.warehouse, asset).emit()
                assert_same(played, topics, asset)
                assert Outbox(played.warehouse, asset).emit().transactions == 0


@pytest.mark.slow
def test_discarding_panes_hold_the_events_of_their_firing_alone(
    played: Played, topics: Topics
) -> None:
    """A window that goes on gives each firing, as the table of panes has it."""
    asset = emitting(topics, played, "discarding")
    outbox = Outbox(played.warehouse, asset)
    before: list[dict[str, Any]] = []
    firings = Counter[int]()
    while played.run():
        outbox.emit()
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
            for r in map(shown, played.warehouse.take(asset.panes_table).to_pylist())
            if (place(r), r["commit_number"]) in of
        }
        assert parts == fired
        firings.update(Counter(key[:2] for key in parts).values())
        before = sent
    assert {1, 2} <= set(firings)
    runs = {
        marker.commit_number: marker.run
        for marker in Asset(played.warehouse, asset).state.since(-1)
    }
    assert all(pane["run"] == runs[pane["commit_number"]] for pane in before)


# Once for each fail point.
@pytest.mark.slow
def test_killed_anywhere_the_next_one_goes_on(
    played: Played, topics: Topics, tmp_path: Path
) -> None:
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run()
    seen = [Outbox(played.warehouse, asset).emit().records]
    played.run(100)
    with parent(tmp_path) as process:
        for step, more in (("emit", 0), ("emitted", 1), ("noted", 1), ("emit", 0), ("emitted", 1)):
            process.begin(played, asset, step)
            assert process.ended() == -signal.SIGKILL
            seen.append(len(records(topics.servers, name, committed=False)))
            assert (seen[-1] > seen[-2]) == more, (step, seen)
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    assert_same(played, topics, asset, committed=False)
    # What the second and the fifth had produced was undone.
    assert len(records(topics.servers, name)) < len(records(topics.servers, name, committed=False))


# Starts and kills many processes.
@pytest.mark.slow
def test_killed_at_any_instant_the_next_one_goes_on(
    played: Played, topics: Topics, tmp_path: Path
) -> None:
    asset, chance = emitting(topics, played, "discarding"), random.Random(5)
    ends = Counter[int]()
    with parent(tmp_path) as process:
        while played.run():
            # One that ends by itself before its instant is not killed.
            with suppress(psutil.NoSuchProcess):
                child = psutil.Process(process.begin(played, asset))
                time.sleep(chance.random() * 0.4)
                child.kill()
            ends[process.ended()] += 1
    assert ends[-signal.SIGKILL] > 0, ends
    assert set(ends) <= {0, -signal.SIGKILL}, ends
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    assert_same(played, topics, asset, committed=False)


def test_who_was_thought_dead_is_refused(played: Played, topics: Topics) -> None:
    asset = emitting(topics, played, "accumulating")
    played.run()
    zombie = Outbox(played.warehouse, asset)
    zombie.emit()
    played.run()
    Outbox(played.warehouse, asset).emit()
    played.run()
    with pytest.raises(ConflictError, match="Another process now publishes 'per_minute'"):
        zombie.emit()
    zombie.emit()
    assert_same(played, topics, asset)


def test_a_topic_has_an_asset_of_one_database(
    recording: Callable[[Window], Recorded], tmp_path: Path, topics: Topics
) -> None:
    """Another one's of that name is refused, and nothing is written, until it takes the topic
    over; also by who had looked before there was any."""
    one, other = (recording(MINUTES).play(tmp_path / name) for name in ("one", "other"))
    asset = emitting(topics, one, "retracting")
    for played in (one, other):
        played.run()
    theirs = Outbox(other.warehouse, asset)
    theirs._channel.open()
    ours = Outbox(one.warehouse, asset)
    ours.emit()
    with pytest.raises(ConflictError):
        theirs.emit()
    sentence = rf"has 'per_minute' of the database .*/one/{one.database}\. .* --reset`\.$"
    for emit in (theirs.emit, Outbox(other.warehouse, asset).emit):
        with pytest.raises(DefinitionError, match=sentence):
            emit()
    with pytest.raises(DefinitionError, match=sentence):
        sink_status(other.warehouse, asset)
    one.run()
    ours.emit()
    assert_same(one, topics, asset)
    Outbox(other.warehouse, asset).emit(anew=True)
    one.run()
    with pytest.raises(ConflictError):
        ours.emit()
    with pytest.raises(DefinitionError, match=r"of the database .*/other/"):
        ours.emit()
    assert_same(other, topics, asset)


def test_a_new_epoch_takes_back_what_went_before(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run()
    outbox = Outbox(played.warehouse, asset)
    outbox.emit()
    # Epochs are counted by the clock, and go on where that was set back.
    shift_clock(monkeypatch, -1)
    # By hand; then as the topic has more partitions; as its history is gone; and as it is new.
    outbox.emit(anew=True)
    assert_same(played, topics, asset)
    topics.grow(name, 3)
    played.run()
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    played.run(2)
    played.warehouse.committer.checkpoint(asset.table, forget=False)
    for commit in played.logs[0].glob("*.json"):
        commit.unlink()
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    epochs = [(p, v["epoch"]) for p, _, v in records(topics.servers, name)]
    assert len({epoch for _, epoch in epochs}) == 4
    assert epochs == sorted(epochs)
    topics.delete(name)
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)


def test_a_table_made_anew_while_it_goes_out_begins_one_epoch(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the look at it was before that, and the new one has not come as far."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    Outbox(played.warehouse, asset).emit()
    played.run()
    before = played.warehouse.head(asset.table)
    played.begin()
    played.anew(asset.table, asset.state_table)
    played.run()
    warehouse, looks = played.warehouse, iter([before] * 2)
    look = warehouse.head
    monkeypatch.setattr(
        warehouse,
        "head",
        lambda table: next(looks, None) or look(table) if table == asset.table else look(table),
    )
    outbox = Outbox(warehouse, asset)
    send, sent = outbox._channel.send, list[int]()

    def counted(*given: Any) -> int:  # noqa: ANN401
        assert len(sent) < 3
        sent.append(send(*given))
        return sent[-1]

    monkeypatch.setattr(outbox._channel, "send", counted)
    assert outbox.emit().transactions == 1
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, topic_of(asset).name)}) == 2
    assert Outbox(played.warehouse, asset).emit().transactions == 0


def test_a_state_made_anew_beside_its_table_begins_an_epoch(played: Played, topics: Topics) -> None:
    """As a drop leaves it that was killed after it had taken the state, which goes first."""
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run(2)
    Outbox(played.warehouse, asset).emit()
    state = played.folder / played.database / asset.state_table
    state.rename(played.folder / "away")
    played.run()
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, name)}) == 1
    (played.folder / "away").rename(state)
    played.anew(asset.state_table)
    for commit in (state / "_delta_log").glob("*.json"):
        if int(commit.stem) > 1:
            commit.unlink()
    played.run()
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, name)}) == 2
    played.run()
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, name)}) == 2


def test_a_topic_that_is_not_the_one_that_was_filled_has_nothing(
    played: Played, topics: Topics
) -> None:
    asset = emitting(topics, played, "accumulating")
    name, table = topic_of(asset).name, asset.table
    played.run(3)
    Outbox(played.warehouse, asset).emit()
    head = played.warehouse.head(table)
    assert head is not None
    topics.settled(topic_of(asset).positions)
    assert sink_status(played.warehouse, asset).behind == 0
    topics.delete(name)
    topics.create(2, name)
    found = sink_status(played.warehouse, asset)
    assert (found.version, found.behind, found.run) == (-1, head.version + 1, None)
    assert found.since == played.warehouse.committer.committed_at(table, 0)
    # What is behind is older than what the log tells of, and so it is late as well.
    played.warehouse.committer.checkpoint(table, forget=False)
    for version in range(head.version):
        (played.logs[0] / f"{version:020}.json").unlink()
    found = sink_status(played.warehouse, asset)
    assert found.since == played.warehouse.committer.committed_at(table, head.version)
    topics.delete(name)
    assert sink_status(played.warehouse, asset).version == -1


@pytest.mark.parametrize("made", ["by it", "by others"])
def test_who_follows_fills_a_topic_that_was_made_anew(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """Though nothing more is published."""
    monkeypatch.setattr(following, "MAX_WAIT_SECONDS", 0.5)
    asset = emitting(topics, played, "retracting")
    name = topic_of(asset).name
    played.run(3)
    ended, out, failures = Event(), Queue[PublishResult](), list[TidemarkError]()
    given = (played.warehouse, asset, ended, out.put, failures.append)
    thread = Thread(target=following.follow, args=given, daemon=True)
    thread.start()
    first = out.get(timeout=60)
    # It may be there again before anybody has seen that it was gone.
    topics.admin.delete_topics([name])[name].result()
    if made == "by others":
        # The outbox may have been quicker.
        with suppress(KafkaException):
            topics.create(2, name)
    assert out.get(timeout=60).records == first.records, failures
    ended.set()
    thread.join(60)
    assert_same(played, topics, asset)


def test_positions_go_and_an_epoch_begins(played: Played, topics: Topics) -> None:
    """Also under an outbox that is at work: who comes after it could not tell where to go on."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    outbox = Outbox(played.warehouse, asset)
    outbox.emit()
    topics.delete(topic_of(asset).positions)
    assert sink_status(played.warehouse, asset).version == -1
    assert outbox.emit().transactions == 1
    topics.settled(topic_of(asset).positions)
    assert sink_status(played.warehouse, asset).behind == 0
    assert Outbox(played.warehouse, asset).emit().transactions == 0
    assert_same(played, topics, asset)


def test_a_table_put_back_as_it_was_begins_an_epoch(played: Played, topics: Topics) -> None:
    """As from a backup: the topic has what the table has no more."""
    asset = emitting(topics, played, "retracting")
    played.run(3)
    outbox = Outbox(played.warehouse, asset)
    outbox.emit()
    newest = sorted(played.logs[0].glob("*.json"))[-1]
    newest.rename(newest.with_suffix(".ahead"))
    outbox.emit()
    assert_same(played, topics, asset)
    newest.with_suffix(".ahead").rename(newest)
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    newest.rename(newest.with_suffix(".ahead"))
    Outbox(played.warehouse, asset).emit()
    assert_same(played, topics, asset)
    assert len({v["epoch"] for _, _, v in records(topics.servers, topic_of(asset).name)}) == 3


def test_what_another_asset_has_under_way_hides_no_position(
    played: Played, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a topic that both publish to: what came after it would go out a second time."""
    asset = emitting(topics, played, "retracting")
    topic = topic_of(asset)
    played.run()
    before = Outbox(played.warehouse, asset)
    before.emit()
    other = topics.producer(transactional_id="another")
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topic.positions, b"{}", b"another", 0)
    assert other.flush(30) == 0
    played.run()
    before.emit()
    played.run()
    monkeypatch.setattr("tidemark_streaming.sink.channel.OPEN_TRANSACTION_SECONDS", 0.5)
    try:
        with pytest.raises(DataError, match="another asset's producer has an open") as caught:
            Outbox(played.warehouse, asset).emit()
        assert caught.value.retriable
    finally:
        other.abort_transaction(30)
    assert Outbox(played.warehouse, asset).emit().transactions == 1
    assert_same(played, topics, asset)


def test_brokers_that_are_gone_are_one_sentence(played: Played) -> None:
    quick = {"socket.connection.setup.timeout.ms": "1000"}
    played.run()
    asset = played.to(KafkaSink("panes", "127.0.0.1:1", client=quick), "accumulating")
    with pytest.raises(DataError, match=r"Kafka at 127.0.0.1:1 can't be "):
        Outbox(played.warehouse, asset).emit()


def test_where_panes_are_not_kept_there_are_none_to_publish() -> None:
    with pytest.raises(DefinitionError, match="accumulation must be set"):
        replace(PER_MINUTE, sink=KafkaSink("departures"))
    with pytest.raises(DefinitionError, match="'a b' is not a valid topic name"):
        KafkaSink("a b")
    with pytest.raises(DefinitionError, match=r"at least 1 partition \(got 0\)"):
        KafkaSink("a", partitions=0)


def test_where_panes_go_changes_nothing_of_what_is_computed() -> None:
    asset = replace(PER_MINUTE, accumulation="accumulating")
    topic = KafkaSink("departures", client={"sasl.password": secret("env:NOBODYS")})
    assert fingerprint(replace(asset, sink=topic)) == fingerprint(asset)
    with pytest.raises(DefinitionError, match="Topic 'departures' has the value of sasl"):
        KafkaSink("departures", client={"sasl.password": "none-of-anybodys"})
