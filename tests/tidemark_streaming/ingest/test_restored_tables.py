"""Tables are restored from a copy while a process goes on to ingest.

One process follows a source, or a row asset over it. In between, its tables are restored from an
earlier copy in one of three ways. Another process then ingests other arrivals, often so many that
the tables have as many as before, and the timeline may lose its newest commit. All of it is drawn
from a seed. Whenever the process has polled, its tables equal what the outside system has sent, or
it has ended with an error.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from random import Random

import pytest

from helpers.graph.case import Part
from helpers.graph.check import difference
from helpers.graph.connector import Sent, SentConnector
from helpers.graph.home import Home, Project
from helpers.graph.seeds import seeds
from helpers.graph.without_engine import local_warehouse, plain_rows
from tidemark.base.errors import TidemarkError
from tidemark.store.integrity import table_check
from tidemark.store.integrity.damage import DamageError
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Connector
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest import ingest as module
from tidemark_streaming.ingest.ingest import follow_source, ingest
from tidemark_streaming.ingest.ingest_record import Ingest
from tidemark_streaming.ingest.silence import Silence
from tidemark_streaming.snapshot.staleness import find_stale_source
from tidemark_streaming.snapshot.tables import Tables

SOURCE, ROW_ASSET = "a", "u"
NODES: Part = {ROW_ASSET: {"kind": "row_asset", "source": SOURCE, "function": "all"}}
WAYS = ("another folder", "the same folder", "the same folder, with later data files")
TIMELINE_LOG = f"{SOURCE}_timeline/_delta_log"


class Follower:
    """A process that follows a source in a thread, and polls only when `poll` is called.

    Args:
        error: the error with which the process has ended; None while it runs.
    """

    def __init__(self, warehouse: Warehouse, connector: Connector) -> None:
        self.error: BaseException | None = None
        self._arguments = warehouse, connector
        self._may_poll = threading.Semaphore(0)
        self._has_polled = threading.Semaphore(0)
        self._is_stopped = False
        self._checked = set[tuple[str, str]]()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def poll(self) -> None:
        """Let the process poll twice: the first poll may only open the tables again."""
        for _ in range(2):
            if self.error is not None:
                return
            with _checked_nodes(self._checked):
                self._may_poll.release()
                self._has_polled.acquire()

    def stop(self) -> None:
        self._is_stopped = True
        self._may_poll.release()
        self._thread.join()

    def sleep(self, _: float) -> None:
        """Wait for the next call of `poll`, in place of `time.sleep` between two polls."""
        if threading.current_thread() is self._thread:
            self._has_polled.release()
            self._wait()

    def _run(self) -> None:
        try:
            self._wait()
            for _ in follow_source(*self._arguments):
                pass
        except BaseException as error:
            self.error = error
        self._has_polled.release()

    def _wait(self) -> None:
        self._may_poll.acquire()
        if self._is_stopped:
            raise SystemExit


@contextmanager
def _checked_nodes(own: set[tuple[str, str]]) -> Iterator[None]:
    """Within the context, the tables that this process has checked are those of one process."""
    table_check.checked_nodes.clear()
    table_check.checked_nodes.update(own)
    yield
    own.clear()
    own.update(table_check.checked_nodes)


def restore(backup: Path, table: Path, way: str) -> None:
    """Restore a table from a copy: in a new folder, or in its folder, as `rsync` does."""
    if way == WAYS[0]:
        shutil.rmtree(table)
        shutil.copytree(backup, table)
        return
    for file in [path for path in table.rglob("*") if path.is_file()]:
        copy = backup / file.relative_to(table)
        is_same = copy.exists() and copy.read_bytes() == file.read_bytes()
        is_kept = way == WAYS[2] and file.suffix == ".parquet" and file.parent.name != "_delta_log"
        if not is_same and not is_kept:
            file.unlink()
    for copy in [path for path in backup.rglob("*") if path.is_file()]:
        file = table / copy.relative_to(backup)
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            shutil.copy2(copy, file)


class Scene:
    """The outside system, the home, and the process that follows one of its sources."""

    def __init__(self, folder: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.chance, self._folder = Random(seed), str(folder)
        self.home = Home(self._open(), Project({SOURCE: {"bound": 0}}, NODES))
        self.sent = self.home.sent[SOURCE]
        self._connector = SentConnector(self.home.definitions.sources[SOURCE], self.sent)
        self.followed = self.chance.choice([SOURCE, ROW_ASSET])
        row_asset = self.home.definitions.derived[ROW_ASSET]
        followed = self._connector if self.followed == SOURCE else DerivedConnector(row_asset)
        self.follower = Follower(self._open(), followed)
        self._count = 0
        patch.setattr(module.time, "sleep", self.follower.sleep)
        patch.setattr(module, "Silence", lambda _: Silence(None))

    def _open(self) -> Warehouse:
        return local_warehouse(self._folder, "tables")

    def send(self) -> None:
        """Send an arrival with a few rows."""
        self._count += 1
        rows = [
            {"t": self._count, "k": "x", "v": 1, "id": f"{self._count}-{row}"}
            for row in range(self.chance.randint(0, 2))
        ]
        self.sent.append(Sent(self._count, rows))

    def ingest(self) -> None:
        """Ingest the source in another process, perhaps on another machine."""
        with _checked_nodes(set()), pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "lock_ingest", lambda *_: nullcontext())
            patch.setattr(module, "record_error", lambda _: nullcontext(Ingest()))
            list(ingest(self._open(), self._connector, batch=None))

    def send_and_poll(self, count: int) -> None:
        for _ in range(count):
            self.send()
            if self.followed != SOURCE:
                self.ingest()
            if self.chance.random() < 0.7:
                self.poll()

    def poll(self) -> None:
        """Let the process poll, and check its tables unless it has ended with an error."""
        # The rows of the row asset are computed from event logs that are kept in memory.
        self.home.logs.clear()
        self.follower.poll()
        if self.follower.error is not None:
            if not isinstance(self.follower.error, TidemarkError):
                raise self.follower.error
            return
        self.home.logs.clear()
        self.home.store = self._open()
        definitions, folder = self.home.definitions, str(self.home.folder)
        source = definitions.source(self.followed)
        assert table_check.find_damage(folder, [source], []) == []
        assert find_stale_source(Tables(folder), source) is None
        assert difference(self.home, self.followed) is None

    def lose_commit(self) -> None:
        """Remove the newest commit of the timeline, as a power failure does."""
        max((self.home.folder / TIMELINE_LOG).glob("*.json")).unlink()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait before the second check of tables, because nothing else writes them."""
    monkeypatch.setattr(table_check, "CONFIRMATION_SECONDS", 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", seeds(6))
def test_a_process_notices_tables_that_were_restored_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    scene = Scene(tmp_path, seed, monkeypatch)
    chance = scene.chance
    with plain_rows(scene.home):
        try:
            scene.send_and_poll(chance.randint(1, 3))
            scene.poll()
            backup, kept = tmp_path / "backup", len(scene.sent)
            # Files that are being replaced, such as records of workers, vanish during the copy.
            replaced = shutil.ignore_patterns(".*.json.*")
            shutil.copytree(scene.home.folder, backup, ignore=replaced)
            lost = chance.randint(1, 3)
            scene.send_and_poll(lost)
            scene.poll()

            del scene.sent[kept:]
            way = chance.choice(WAYS)
            for table in backup.glob(f"{SOURCE}_*"):
                restore(table, scene.home.folder / table.name, way)
            if chance.random() < 0.4:
                scene.poll()
            for _ in range(max(0, lost + chance.choice([0, 0, 0, -1, 1]))):
                scene.send()
                if chance.random() < 0.5:
                    scene.ingest()
            scene.ingest()
            if chance.random() < 0.3:
                scene.lose_commit()
            else:
                scene.poll()
            # If the row asset has read the lost arrival, each ingest of the source is refused.
            with suppress(DamageError):
                scene.send_and_poll(1)
                scene.poll()
        finally:
            scene.follower.stop()
