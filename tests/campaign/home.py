"""The home of a campaign, in which all its victims run."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as ds

from campaign.keeper import COMMAND, Kept
from campaign.producer import Producer
from conftest import SHORT_LIVED
from helpers.kafka.topics import Topics
from numbered.connectors import TOPIC
from numbered.sources import MORE, gained, numbers
from numbered.transforms import numbers_counted
from tidemark import engine
from tidemark.base.errors import TidemarkError
from tidemark.base.failpoint import FAIL_AT
from tidemark.base.instants import as_datetime
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_assets.base.resources import TidemarkResource
from tidemark_streaming.home import services
from tidemark_streaming.kafka import broker
from tidemark_streaming.sink.writer import open_topic
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import desired_streams
from tidemark_streaming.streams.supervisor import RUNNING, read_statuses

TESTS = Path(__file__).parents[1]
PATIENCE = 600.0
"""Seconds without recovery after which a campaign ends."""

TRACEBACK = re.compile(r"Traceback |Exception ignored in|\s+File \".+\", line \d+")
"""A line of a traceback, or before it."""

OF_OTHERS = ("engine", "kafka", "metastore", "dbt")
"""The beginnings of the names of logs that other programs write."""

INTERRUPTED = 130
"""The exit code of a command that was interrupted while it waited."""


def own_settings(home: Path) -> Settings:
    """Return the settings of a home with free ports and a small engine."""
    ports = ("engine_port", "kafka_port", "webserver_port", "watch_port")
    return Settings(
        home=home,
        engine_memory="1g",
        engine_java_options=SHORT_LIVED,
        engine_archive=False,
        domains=("numbered",),
        **{name: free_port() for name in ports},
    )


class Home:
    """The running parts: broker, engine, producer, `ingest --follow` and `stream`.

    There is no `stream` while the ingest runs the asset itself.

    Args:
        ends: gets the callbacks that stop everything.
        rate: events per second.
        seed: the producer's random seed.
    """

    def __init__(self, settings: Settings, ends: ExitStack, rate: int, seed: int) -> None:
        self.settings = settings
        self.fail_at = settings.home / "fail_at"
        """The file that requests a fail point."""
        self.ending = threading.Event()
        """Set at the end of the campaign, so that no thread starts another process."""
        self._odd: list[str] = []
        logs = settings.home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.env = ends.enter_context(_environment(settings, self.fail_at))
        self._logs = logs
        # The engine stops last, because any running command would start it again.
        ends.callback(self._down)
        ends.callback(self.rest)
        ends.callback(self.ending.set)
        broker.start_broker(settings)
        topics = Topics(broker.broker_address(settings))
        topics.create(partitions=2, name=TOPIC)
        engine.ensure_engine(settings)
        self.producer = Producer(topics, TOPIC, rate, seed)
        self.ingest = self._following()
        self.snapshot = Snapshot(settings)
        self._tables = TidemarkResource(settings).tables
        self._topic = open_topic(numbers_counted, self._tables)
        await_("The first arrival", lambda: self.snapshot.newest_arrival(numbers.name) >= 0)
        self.stream = Kept(
            *("stream", numbers_counted.name),
            log=logs / "stream.log",
            env=self.env,
            at_work="arrivals ",
        )

    def published(self, since: int) -> bool:
        """Return whether the first arrival after an instant, in microseconds, is published."""
        instant = pa.scalar(as_datetime(since), pa.timestamp("us", "UTC"))
        chosen = ds.field("arrived_at") > instant
        found = self.snapshot.tables.read(numbers.timeline_table, ["arrival"], chosen)
        first = min([] if found is None else found["arrival"].to_pylist(), default=None)
        return first is not None and not self.snapshot.assets_behind([numbers_counted.name], first)

    def head(self) -> int:
        """Return the newest version of the published table."""
        return self._tables.newest_version(numbers_counted.published_table)

    def out(self, version: int) -> bool:
        """Return whether the topic contains that version of the published table."""
        try:
            stands, head = (
                self._topic.read_position(),
                self._tables.find_head(numbers_counted.published_table),
            )
        except TidemarkError:
            # The broker may be down.
            return False
        if stands is None or head is None:
            return False
        return stands.table == head.table_id and stands.version >= version

    def widen(self) -> None:
        """Add a column to the source, which the next process that starts will see."""
        file = Path(self.env[MORE])
        file.with_suffix(".new").write_text(str(gained() + 1))
        file.with_suffix(".new").replace(file)

    def run_directly(self) -> None:
        """Let the ingest run the asset in its own process instead of a stream."""
        self._stop(self.stream)
        self._stop(self.ingest)
        self.ingest = self._following("--run", numbers_counted.name)

    def brought(self) -> int:
        """Return the number of ingested records, including undecodable ones."""
        return sum(a.rows + a.dead_letters for a in self.snapshot.read_timeline(numbers.name))

    def supervise(self) -> None:
        """Let Dagster's daemon supervise a stream, in parallel with an ingest without runs."""
        self._stop(self.stream)
        self._stop(self.ingest)
        self.ingest = self._following()
        self.up()
        self.request()
        await_("The supervisor", lambda: self.looked_after(0))

    def request(self) -> None:
        """Request the stream, as `tidemark stream --detach` does."""
        desired_streams.request_stream(self.settings, numbers_counted.name)

    def rest(self) -> list[str]:
        """Stop the commands. Return messages about their unexpected exits."""
        desired_streams.cancel_request(self.settings, numbers_counted.name)
        for name in ("daemon", "webserver", "watch"):
            services.find_service(self.settings, name).stop()
        for kept in (self.stream, self.ingest):
            self._stop(kept)
        return self._odd

    def _following(self, *more: str) -> Kept:
        arguments = ("ingest", numbers.name, "--follow", *more)
        return Kept(*arguments, log=self._logs / "ingest.log", env=self.env)

    def _stop(self, kept: Kept) -> None:
        if kept.stopped:
            return
        code = kept.stop()
        self._odd += [f"{kept.name} ended by itself, with {c}" for c in kept.ended]
        if code not in (0, INTERRUPTED):
            self._odd.append(
                f"{kept.name} was asked to end, and did so with {code}:\n{kept.said()}"
            )

    def up(self) -> None:
        """Run `tidemark up`."""
        done = subprocess.run([COMMAND, "up"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"`tidemark up` ended with {done.returncode}: {done.stderr}")

    def looked_after(self, since: int) -> bool:
        """Return whether the supervisor saw the stream run after an instant in microseconds."""
        now = time.time_ns() // 1000
        fresh = read_statuses(self.settings, now, now - since)
        stream = fresh.get(numbers_counted.name)
        return stream is not None and stream.state == RUNNING

    def left(self) -> list[str]:
        """Return the running processes of this home, except this one."""
        mine = f"TIDEMARK_HOME={self.settings.home}"
        found: list[str] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                told = [f"{name}={value}" for name, value in process.environ().items()]
                if process.pid != os.getpid() and mine in told:
                    found.append(" ".join(process.cmdline())[:200])
        return found

    def _down(self) -> None:
        engine.stop_engine(self.settings)
        broker.broker_process(self.settings).stop()


def tracebacks(logs: Path) -> Iterator[str]:
    """Yield a message for each log in a folder that has the traceback of a Python exception.

    The logs of other programs are left out.
    """
    for log in sorted(logs.glob("*.log")):
        if log.name.startswith(OF_OTHERS):
            continue
        lines = log.read_text(errors="replace").splitlines()
        first = next((n for n, line in enumerate(lines) if TRACEBACK.match(line)), None)
        if first is not None:
            shown = "\n".join(lines[max(first - 5, 0) : first + 40])
            yield f"{log.name} has a traceback:\n{shown}"


def await_(what: str, done: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it did not hold in time.
    """
    deadline = time.monotonic() + patience
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come in {patience:.0f} seconds")
        time.sleep(0.1)


@contextmanager
def _environment(settings: Settings, fail_at: Path) -> Iterator[dict[str, str]]:
    """Set the environment variables of all processes, including this one."""
    before = dict(os.environ)
    names = (
        *("home", "engine_port", "engine_memory", "engine_java_options", "engine_archive"),
        *("kafka_port", "webserver_port", "watch_port"),
    )
    own = {f"TIDEMARK_{name.upper()}": str(getattr(settings, name)) for name in names}
    # This folder does not exist, so that there are no marts.
    own["TIDEMARK_MARTS"] = str(settings.home / "marts")
    own["TIDEMARK_DOMAINS"] = ",".join(settings.domains)
    own[FAIL_AT] = str(fail_at)
    own[MORE] = str(settings.home / "more_columns")
    own["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
    os.environ.update(own)
    try:
        yield before | own
    finally:
        os.environ.clear()
        os.environ.update(before)
