"""A stress test: streams and increments in parallel on a busy machine, then a check for losses.

Three streaming queries in separate sessions and increments in a separate process read the same
arrivals, while other processes keep the CPU busy. Each makes one run per arrival, into an asset
that expects `matches_log()` and `volume_within()`. The data determine which windows are
quarantined. Tidemark lost or duplicated events of any other quarantined window.

    python tests/stress.py --runs 300
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from helpers.data.support import MINUTE, PER_MINUTE, READINGS, T0, Event, ingest
from tidemark import engine as spark_engine
from tidemark.base.instants import format_instant, parse_instant
from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.engine.connect import engine_address
from tidemark.engine.ports import free_port
from tidemark.expect import matches_log, volume_within
from tidemark.quality import results
from tidemark.run.admission import Admission
from tidemark.run.runner import incremental
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.streams import continuous

ROOT = Path(__file__).parents[1]
SOURCE = replace(READINGS, name="stress")
STREAMS = ("stream_1", "stream_2", "stream_3")
INCREMENT = "increment"
USUAL = 8
"""Readings per sensor and minute."""
PATIENCE = 300.0
"""Seconds without a run after which the test gives up."""
REMOTE = "TIDEMARK_STRESS_REMOTE"

Place = tuple[int, str | None]
"""A window's start in microseconds and its sensor."""


def asset(name: str) -> WindowedTransform:
    """Return an asset with expectations that Tidemark itself evaluates."""
    expected = (matches_log(), volume_within(0.5, of="1 minute"))
    return replace(PER_MINUTE, name=name, source=SOURCE, expectations=expected)


def doubles(minute: int) -> bool:
    """Return whether the sensor `b` sends twice as many readings in a minute."""
    return minute % 5 == 1


def arrivals(count: int) -> list[list[Event]]:
    """Return an arrival per minute; from the fourth on, each has one late event."""
    found: list[list[Event]] = []
    for minute in range(count):
        start = T0 + minute * MINUTE
        events = [
            Event(start + n * 3_000_000, sensor, round(n / 10, 1))
            for sensor in ("a", "b", None)
            for n in range(USUAL * 2 if sensor == "b" and doubles(minute) else USUAL)
        ]
        if minute >= 3:
            events.append(Event(start - 3 * MINUTE + 59_000_000, "a", 0.5))
        found.append(events)
    return found


def explained(count: int) -> set[Place]:
    """Return the windows that fail `volume_within()` in the given number of arrivals."""
    return {(T0 + minute * MINUTE, "b") for minute in range(count) if doubles(minute)}


def faults(
    warehouse: Warehouse, transforms: Sequence[WindowedTransform], withheld: Collection[Place]
) -> list[str]:
    """Return a message for each fault of assets that have processed all arrivals.

    Args:
        withheld: exactly the windows that must be quarantined for their volume.
    """
    return [
        f"{transform.name}: {sentence}"
        for transform in transforms
        for sentence in _faults(warehouse, transform, withheld)
    ]


def _faults(
    warehouse: Warehouse, transform: WindowedTransform, withheld: Collection[Place]
) -> Iterator[str]:
    asset_, newest = (
        Asset(warehouse, transform),
        Log(warehouse, transform.source).find_last_arrival(),
    )
    last = asset_.state.read_last_commit()
    if newest is None or last.furthest_position.arrival != newest.arrival:
        yield f"stands at arrival {last.furthest_position.arrival} of {newest and newest.arrival}"
    runs = [
        r["commit_number"]
        for r in warehouse.load_rows(ledger.TABLE).to_pylist()
        if (r["asset"], r["table_id"]) == (transform.name, asset_.table_id)
    ]
    if sorted(runs) != [*range(last.commit_number + 1)]:
        lacking = sorted(set(range(last.commit_number + 1)) - {*runs})
        count = last.commit_number + 1
        yield f"the ledger has {len(runs)} rows for {count} commits, and lacks {lacking}"
    for r in warehouse.load_rows(results.TABLE).to_pylist():
        if (r["asset"], r["expectation"]) == (transform.name, "matches_log()") and not r["success"]:
            yield f"matches_log() failed in commit {r['commit_number']}: {r['observed']}"
    report = check_parity(warehouse, transform)
    if not report.is_equal:
        yield f"parity finds {report.kinds} in {report.windows} rows"
    held = {
        (parse_instant(r["window_start"]), r["sensor"]): [
            f["expectation"] for f in r["failed_expectations"]
        ]
        for r in warehouse.load_rows(transform.quarantine_table).to_pylist()
    }
    for (start, sensor), failed in sorted(held.items(), key=str):
        if (start, sensor) not in withheld or "matches_log()" in failed:
            yield (
                f"{format_instant(start)}, {sensor} is withheld by {failed}, which its data do "
                "not explain"
            )
    for start, sensor in sorted(set(withheld) - held.keys()):
        yield (
            f"{format_instant(start)}, {sensor} is not withheld, though its volume is not as usual"
        )


def stress(
    settings: Settings, runs: int, busy: int, tell: Callable[[str], None]
) -> tuple[int, list[str]]:
    """Make at least the given number of runs in parallel. Return their number and the faults.

    Args:
        settings: the settings of a running engine; the tables are in a new database.
        busy: the number of processes that keep the CPU busy.
    """
    count = max(2, -(-runs // (len(STREAMS) + 1)) - 1)
    database = f"stress_{uuid4().hex[:12]}"

    def store() -> Warehouse:
        return Warehouse(spark_engine.connect_session(settings), settings.warehouse, database)

    warehouse, transforms = store(), [asset(name) for name in (*STREAMS, INCREMENT)]
    Log(warehouse, SOURCE).ensure_tables()
    ledger.ensure_ledger(warehouse)
    with ExitStack() as stack:
        for _ in range(busy):
            stack.enter_context(_process("-c", "while True: pass"))
        place = (warehouse.location, database, str(count))
        own = stack.enter_context(
            _process(__file__, "--increment", *place, remote=engine_address(settings))
        )
        queries: list[StreamingQuery] = []
        for transform in transforms[: len(STREAMS)]:
            queries.append(continuous.start_query(store(), transform, admission=Admission(1)))
            stack.callback(queries[-1].stop)
        for events in arrivals(count):
            ingest(warehouse, SOURCE, [events], ends=False)
        ingest(warehouse, SOURCE, [])
        ended = _wait(warehouse, transforms, count, queries, own, tell)
    done = sum(_done(warehouse, transform) for transform in transforms)
    return done, [*ended, *faults(warehouse, transforms, explained(count))]


def _wait(
    warehouse: Warehouse,
    transforms: Sequence[WindowedTransform],
    count: int,
    queries: Sequence[StreamingQuery],
    own: "subprocess.Popen[bytes]",
    tell: Callable[[str], None],
) -> list[str]:
    """Wait until every asset has run each arrival and the end. Return messages for early exits."""
    total, before, moved = len(transforms) * (count + 1), -1, time.monotonic()
    while True:
        done = sum(_done(warehouse, transform) for transform in transforms)
        if done != before:
            tell(f"{done} of {total} runs")
            before, moved = done, time.monotonic()
        if done >= total:
            return []
        found = [f"{q.name} ended: {q.exception()}" for q in queries if not q.isActive]
        if own.poll() not in (None, 0):
            found.append(f"the process of increments ended with exit code {own.returncode}")
        if time.monotonic() - moved > PATIENCE:
            found.append(f"no run ended for {PATIENCE:.0f} seconds, after {done} of {total}")
        if found:
            return found
        time.sleep(1)


def _done(warehouse: Warehouse, transform: WindowedTransform) -> int:
    """Return the number of published runs of an asset."""
    return Asset(warehouse, transform).published_commit_number() + 1


@contextmanager
def _process(*arguments: str, remote: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """Run Python in a separate process for the duration of the block."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {REMOTE: remote, "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, *arguments], env=env) as process:
        try:
            yield process
        finally:
            process.terminate()


def _increments(location: str, database: str, last: int) -> None:
    """Run an increment for each arrival as it comes, through the arrival `last`."""
    spark = SparkSession.builder.remote(os.environ[REMOTE]).getOrCreate()
    warehouse, transform = Warehouse(spark, location, database), asset(INCREMENT)
    through = -1
    while through < last:
        facts = incremental(warehouse, transform, limit=1)
        through = through if facts is None else facts.through_arrival
        if facts is None:
            time.sleep(0.1)


@contextmanager
def _engine() -> Iterator[Settings]:
    """Run an engine for the duration of the block. Do not stop that of `TIDEMARK_TEST_HOME`."""
    # The engine's Python workers import this module to unpickle functions.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    if kept := os.environ.get("TIDEMARK_TEST_HOME"):
        settings = Settings(home=Path(kept))
        spark_engine.ensure_engine(settings)
        yield settings
        return
    settings = Settings(home=Path(tempfile.mkdtemp()), engine_port=free_port())
    try:
        spark_engine.ensure_engine(settings)
        yield settings
    finally:
        spark_engine.stop_engine(settings)
        shutil.rmtree(settings.home, ignore_errors=True)


def main() -> int:
    """Run the command. Return the exit code, 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--increment", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.increment:
        location, database, last = given.increment
        _increments(location, database, int(last))
        return 0
    began = time.monotonic()
    with _engine() as settings:
        done, wrong = stress(settings, given.runs, given.busy, _print)
    _print(f"{done} runs of {len(STREAMS) + 1} assets in {time.monotonic() - began:.0f} s")
    for sentence in wrong:
        _print(sentence)
    _print(f"{len(wrong)} faults." if wrong else "Nothing was lost, doubled or withheld wrongly.")
    return 1 if wrong else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
