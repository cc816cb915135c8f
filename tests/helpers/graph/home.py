"""A home with the graph of a case: it executes operations in this process, on real tables."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.graph.case import DERIVED, EPOCH_MICROS, SECOND, Part, bases_of, below
from helpers.graph.connector import Sent, SentConnector
from helpers.graph.definitions import Definitions, define
from helpers.graph.engine import CaseEngine
from helpers.graph.mart import (
    MartProject,
    MartRows,
    copy_marts,
    expected_rows,
    kill_dbt,
    restore_marts,
)
from helpers.graph.topic import MemoryTopic
from helpers.graph.windows import AssetHistory, Place, Recompute, Windows, lacking
from helpers.model.derived_oracle import EventLog
from tidemark.base.errors import TidemarkError
from tidemark.base.failpoint import FAIL_AT
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.run import runner
from tidemark.run.change import rebuild
from tidemark.run.erase.erase import erase_events
from tidemark.store import operations
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import Promotion
from tidemark.store.event_log.log import Log
from tidemark.store.integrity import table_check
from tidemark.store.upkeep import dropping, erasures
from tidemark.store.upkeep.maintenance import RETENTION, combine_errors, maintain_tables
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.derived import rebuild as rebuild_source
from tidemark_streaming.ingest.future_watermark import lower_watermarks
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.sink import SinkWriter
from tidemark_streaming.snapshot.staleness import find_stale_asset, find_stale_source
from tidemark_streaming.snapshot.tables import Tables


class Killed(BaseException):
    """The process was killed at a fail point."""


@contextmanager
def dying(point: str | None) -> Iterator[None]:
    """Within the context, a process that reaches a fail point ends with `Killed`."""
    if point is None:
        yield
        return

    send = os.kill

    def kill(process: int, number: int) -> None:
        if number != signal.SIGKILL or process != os.getpid():
            send(process, number)
            return
        # The process dies once.
        os.environ.pop(FAIL_AT, None)
        raise Killed(point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAIL_AT, point)
        patch.setattr("tidemark.base.failpoint.os.kill", kill)
        yield


@dataclass
class Backup:
    """A copy of all tables, with what they were made from."""

    folder: Path
    sent: dict[str, list[Sent]]
    histories: dict[str, AssetHistory]
    promoted: dict[str, AssetHistory]
    built: dict[str, list[MartRows]]

    @property
    def marts(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-marts")


@dataclass
class Project:
    """The code of a project: its sources and nodes, as a case describes them."""

    sources: Part
    nodes: Part

    def define(self) -> Definitions:
        return define(self.sources, self.nodes)


@dataclass
class Home:
    """The tables of a case, and what is known about them without reading them.

    Args:
        sent: the arrivals of each source that its event log must have.
        histories: how the tables of each asset were made.
        erasing: the interrupted erasures, by source.
        topics: the topics to which assets are published.
        built: the rows that each mart may have. An interrupted build allows two results.
        current: the version of the published table of each mart that was completely built.
        logs: the event logs that were read since the last change of a table.
        engine: the engine, if the case has one.
    """

    store: Warehouse
    project: Project
    engine: CaseEngine | None = None
    sent: dict[str, list[Sent]] = field(default_factory=dict[str, list[Sent]])
    histories: dict[str, AssetHistory] = field(default_factory=dict[str, AssetHistory])
    promoted: dict[str, AssetHistory] = field(default_factory=dict[str, AssetHistory])
    rebuilt: dict[str, Part] = field(default_factory=dict[str, Part])
    erasing: dict[str, Part] = field(default_factory=dict[str, Part])
    topics: dict[str, MemoryTopic] = field(default_factory=dict[str, MemoryTopic])
    built: dict[str, list[MartRows]] = field(default_factory=dict[str, list[MartRows]])
    current: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    backup: Backup | None = None
    logs: dict[str, EventLog] = field(default_factory=dict[str, EventLog])

    def __post_init__(self) -> None:
        self.definitions = self.project.define()
        self.earlier = self.project, self.definitions
        self.loaded_project = self.project
        self.loaded = self.definitions
        self.sent |= {name: [] for name in self.project.sources}

    @property
    def nodes(self) -> Part:
        return self.project.nodes

    @property
    def folder(self) -> Path:
        return Path(f"{self.store.location}/{self.store.database}".removeprefix("file://"))

    def reopen(self) -> None:
        """Continue in another process, which checks the tables again."""
        table_check.checked_nodes.clear()
        self.store = type(self.store)(self.store.spark, *self.store.place)

    def restart_engine(self) -> None:
        """Continue in another process after the engine died, with a new engine."""
        assert self.engine is not None
        self.store = self.engine.open()
        self.reopen()

    def history(self, name: str) -> AssetHistory:
        return self.histories.setdefault(name, AssetHistory())

    def has_arrivals(self, source: Source) -> bool:
        store = self.store
        return (
            store.has_table(source.timeline_table)
            and Log(store, source).find_last_arrival() is not None
        )

    # Progress

    def progress(self, name: str) -> None:
        """Ingest a derived source, run an asset, publish to a sink, or build a mart, with all that
        is pending.

        Raises:
            TidemarkError: the node refuses.
        """
        self.logs.clear()
        try:
            self._progress(name)
        finally:
            self.logs.clear()

    def _progress(self, name: str) -> None:
        known = self.loaded
        if name in known.derived:
            list(ingest(self.store, DerivedConnector(known.derived[name]), batch=None))
            return
        if name in known.sinks:
            SinkWriter(self.store, known.sinks[name]).publish_changes()
            return
        if name in known.marts:
            self._update_mart(name)
            return
        asset = known.assets[name]
        if not self.has_arrivals(asset.source):
            return
        try:
            runner.incremental(self.store, asset)
        finally:
            self._note_processed(asset)

    def _note_processed(self, asset: Definition) -> None:
        if asset.rolled_up_name is not None:
            return
        history = self.history(asset.name)
        last = Asset(self.store, asset).state.read_last_commit()
        for arrival in range(last.after.at.arrival + 1):
            history.processed.setdefault(arrival, deepcopy(self.nodes[asset.name]))

    def reported(self, name: str) -> str | None:
        """Return why the product reports that a node is stale; None if it does not.

        A sink has no report of its own: it waits for its asset.
        """
        if name in self.definitions.marts:
            return None
        tables = Tables(str(self.folder))
        if name in self.definitions.derived:
            stale = find_stale_source(tables, self.definitions.derived[name])
        else:
            assets = {**self.definitions.assets, **self.definitions.sinks}
            stale = find_stale_asset(tables, assets[name])
        return None if stale is None else str(stale)

    def damage(self, name: str) -> str | None:
        """Return why the next process refuses the tables of an asset; None if it does not.

        A process checks tables only once. The processes of a home are one process here, so such a
        check passed before the tables of the asset alone were replaced by those of a backup.
        """
        if name not in self.definitions.assets:
            return None
        asset = self.definitions.assets[name]
        damages = table_check.find_damage(str(self.folder), [asset.source], [asset])
        return " ".join(map(str, damages)) or None

    def unfinished(self, name: str) -> str | None:
        """Return the cause of an unfinished operation on a node or on one of its bases, or None."""
        concerned = {name, *bases_of(self.nodes[name])}
        for operation in operations.find_unfinished(str(self.folder)):
            if operation.owner.partition(" ")[2] in concerned:
                return operation.cause
        return None

    def recompute(self, name: str) -> None:
        """Do what a message about a stale node, or about its changed definition, recommends."""
        if name in self.definitions.derived:
            self.do_rebuild_source({"node": name})
        elif name in self.definitions.sinks:
            SinkWriter(self.store, self.definitions.sinks[name]).publish_changes(reset=True)
        elif name in self.definitions.marts:
            self._build(name, full_refresh=True)
        elif self.definitions.assets[name].rolled_up_name is None:
            self.do_backfill({"node": name, "late": False})

    # Operations

    def execute(self, operation: Part) -> None:
        """Execute an operation, without the progress after it."""
        self.logs.clear()
        try:
            getattr(self, f"do_{operation['do']}")(operation)
        finally:
            self.logs.clear()

    def do_arrive(self, operation: Part) -> None:
        self._send(operation["source"], Sent(operation["clock"], list(operation["rows"])))

    def do_beat(self, operation: Part) -> None:
        if self.sent[operation["source"]]:
            self._send(operation["source"], Sent(operation["clock"], [], operation["silence"]))

    def _send(self, name: str, arrival: Sent) -> None:
        self.sent[name].append(arrival)
        self.ingest(name)

    def ingest(self, name: str) -> None:
        """Ingest what the outside system has sent for a source."""
        connector = SentConnector(self.definitions.sources[name], self.sent[name])
        list(ingest(self.store, connector, batch=None))

    def do_correct(self, operation: Part) -> None:
        asset = self.definitions.assets[operation["node"]]
        with self._recomputing(asset, lambda _: self._lacking(asset), late=True):
            runner.correct(self.store, asset)

    def do_backfill(self, operation: Part) -> None:
        asset, late = self.definitions.assets[operation["node"]], operation["late"]
        bounds = operation.get("range")
        start, end = (None, None) if bounds is None else [_micros(each) for each in bounds]
        windows = None if start is None or end is None else [(start, end)]
        with self._recomputing(asset, lambda _: windows, late=late):
            runner.backfill(
                self.store, asset, start, end, late_events="include" if late else "exclude"
            )

    @contextmanager
    def _recomputing(
        self, asset: Definition, choose: Callable[[StateCommit], Windows], *, late: bool
    ) -> Iterator[None]:
        """Note the commits that recompute windows within the context, even if they are killed.

        Args:
            choose: returns the windows that a commit must recompute.
            late: true if too-late events count.
        """
        state = Asset(self.store, asset).state
        before = state.read_last_commit().commit_number
        try:
            yield
        finally:
            for commit in state.read_commits_after(before):
                if commit.recomputed_ranges is None:
                    continue
                node = deepcopy(self.nodes[asset.name])
                # The commit widens ranges of sessions.
                of_sessions = "session" in node and commit.mode != "correction"
                chosen = _recorded(commit) if of_sessions else choose(commit)
                history = self.history(asset.name)
                if chosen is None:
                    history.processed = {}
                self._note_processed(asset)
                history.recomputes.append(
                    Recompute(commit.commit_number, commit.after.newest_arrival, chosen, node, late)
                )

    def _lacking(self, asset: Definition) -> frozenset[Place]:
        from helpers.graph.check import events_of

        last = Asset(self.store, asset).state.read_last_commit()
        events, _ = events_of(self, asset)
        counted = [e for e in events if e.arrival <= last.after.at.arrival]
        return lacking(self.history(asset.name), self.nodes[asset.name], counted)

    def do_redefine(self, operation: Part) -> None:
        changed = deepcopy(self.project)
        changed.nodes[operation["node"]] |= operation["to"]
        self._deploy(changed)

    def do_column(self, operation: Part) -> None:
        changed = deepcopy(self.project)
        changed.sources[operation["source"]].setdefault("more", {})[operation["name"]] = "BIGINT"
        self._deploy(changed)

    def do_retype(self, operation: Part) -> None:
        """Deploy a source that has lost a column or changed its type, and then take that back.

        In between, everything that reads the source tries to make progress.
        """
        name = operation["source"]
        project, definitions = self.project, self.definitions
        changed = deepcopy(project)
        spec = changed.sources[name]
        if operation["removed"] and spec.get("more"):
            spec["more"] = {}
        else:
            spec["id"] = "BIGINT"
        self._deploy(changed)
        try:
            for each in (name, *below(self.nodes, [name])):
                with suppress(TidemarkError):
                    (self.ingest if each == name else self.progress)(each)
        finally:
            self.project = self.loaded_project = project
            self.definitions = self.loaded = definitions

    def _deploy(self, project: Project) -> None:
        definitions = project.define()
        self.earlier = self.project, self.definitions
        self.project = self.loaded_project = project
        self.definitions = self.loaded = definitions

    def do_old(self, operation: Part) -> None:
        """Let a process that has loaded the earlier definitions make progress."""
        self.loaded_project, self.loaded = self.earlier
        try:
            if operation["node"] in self.loaded.derived:
                self.progress(operation["node"])
        finally:
            self.loaded_project = self.project
            self.loaded = self.definitions

    def do_rebuild(self, operation: Part) -> None:
        rebuild.rebuild_tables(self.store, self.definitions.assets[operation["node"]])
        self.rebuilt[operation["node"]] = deepcopy(self.nodes[operation["node"]])

    def do_rebuild_source(self, operation: Part) -> None:
        source = self.definitions.derived[operation["node"]]
        list(rebuild_source.rebuild_source(self.store, source))
        rebuild_source.promote_source(self.store, source)

    def do_promote(self, operation: Part) -> None:
        name = operation["node"]
        asset = self.definitions.assets[name]
        before, earlier = (
            deepcopy(self.history(name)),
            Asset(self.store, asset).state.read_last_commit(),
        )
        try:
            rebuild.promote_tables(self.store, asset)
        finally:
            last = Asset(self.store, asset).state.read_last_commit()
            if last.commit_number > earlier.commit_number and isinstance(last, Promotion):
                self.promoted[name] = before
                self.histories[name] = AssetHistory()
                self._note_processed(asset)

    def do_rollback(self, operation: Part) -> None:
        name = operation["node"]
        rebuild.roll_back(self.store, self.definitions.assets[name])
        self.histories[name] = self.promoted.pop(name, AssetHistory())

    def do_release(self, operation: Part) -> None:
        asset = self.definitions.assets[operation["node"]]
        quarantine.release_windows(self.store, asset, Choice())

    def do_discard(self, operation: Part) -> None:
        asset = self.definitions.assets[operation["node"]]
        quarantine.discard_windows(self.store, asset, Choice())

    def do_lower(self, operation: Part) -> None:
        """Do what `tidemark watermark --lower` does."""
        name = operation["source"]
        changed = deepcopy(self.project)
        changed.sources[name]["skew"] = True
        self._deploy(changed)
        lower_watermarks(self.store, self.definitions.sources[name])
        assets = [a for a in self.definitions.assets.values() if a.source.name == name]
        ran = [
            a for a in assets if Asset(self.store, a).state.read_last_commit().commit_number >= 0
        ]
        for asset in sorted(ran, key=lambda each: each.rolled_up_name is not None):
            if asset.rolled_up_name is None:
                with self._recomputing(asset, lambda _: None, late=False):
                    runner.backfill(self.store, asset)
            else:
                runner.incremental(self.store, asset)

    def do_erase(self, operation: Part) -> None:
        name, (column, value) = operation["source"], _erased_value(operation)
        unloaded = operation.get("unloaded", ())
        hidden = {*unloaded, *below(self.nodes, unloaded)}
        reached = [n for n in below(self.nodes, [name]) if n not in hidden]
        derived = [self.definitions.derived[n] for n in reached if n in self.definitions.derived]
        assets = [self.definitions.assets[n] for n in reached if n in self.definitions.assets]
        source, where = self.definitions.sources[name], f"{column} = '{value}'"
        erase_events(self.store, source, assets, where, derived=derived, dry_run=True)
        try:
            with ExitStack() as noting:
                for asset in assets:
                    if asset.rolled_up_name is None:
                        noting.enter_context(self._recomputing(asset, _recorded, late=False))
                erase_events(self.store, source, assets, where, derived=derived)
        finally:
            for asset in assets:
                self._note_processed(asset)
            self._note_erased(operation)

    def _note_erased(self, operation: Part) -> None:
        name, (column, value) = operation["source"], _erased_value(operation)
        source = self.definitions.sources[name]
        if (
            value
            not in self.store.load_rows(source.log_table, columns=[column])[column].to_pylist()
        ):
            for arrival in self.sent[name]:
                erased = [row for row in arrival.rows if row[column] == value]
                arrival.erased.extend(row["t"] for row in erased)
                arrival.rows[:] = [row for row in arrival.rows if row not in erased]
        if erasures.find_unfinished(self.store, source):
            self.erasing[name] = {**operation, "unloaded": []}
        else:
            self.erasing.pop(name, None)

    def do_drop(self, operation: Part) -> None:
        """Drop a node after everything that reads it, as the command requires."""
        for name in reversed([operation["node"], *below(self.nodes, [operation["node"]])]):
            if name in self.definitions.sinks or name in self.definitions.marts:
                continue
            if self.nodes[name]["kind"] in DERIVED:
                dropping.drop_event_log(self.store, self.definitions.derived[name])
            else:
                dropping.drop_asset(self.store, self.definitions.assets[name])
                self.histories.pop(name, None)
                self.promoted.pop(name, None)

    def do_recreate(self, operation: Part) -> None:
        """Remove the tables of a source by hand, and ingest it again, in one arrival."""
        name = operation["source"]
        for table in self.tables(name):
            shutil.rmtree(self.folder / table, ignore_errors=True)
        rows = [row for arrival in self.sent[name] for row in arrival.rows]
        clock = max((arrival.clock for arrival in self.sent[name]), default=0)
        self.sent[name] = [Sent(clock, rows)] if rows else []
        self.reopen()
        self.ingest(name)

    def do_build(self, operation: Part) -> None:
        """Build a mart. The build may be interrupted as soon as dbt has written the mart."""
        assert self.engine is not None
        ends = {None: None, "dbt": kill_dbt, "engine": self.engine.kill}
        self._build(operation["node"], when_written=ends[operation.get("interrupted")])

    def _update_mart(self, name: str) -> None:
        """Build a mart if its published table has changed since the last complete build."""
        head = self.store.find_head(self.definitions.marts[name].published_table)
        if head is not None and self.current.get(name) != (head.table_id, head.version):
            self._build(name)

    def _build(
        self,
        name: str,
        *,
        full_refresh: bool = False,
        when_written: Callable[[], None] | None = None,
    ) -> None:
        assert self.engine is not None
        table = self.definitions.marts[name].published_table
        head = self.store.find_head(table)
        rows = [] if head is None else self.store.load_rows(table).to_pylist()
        self.current.pop(name, None)
        if head is not None:
            self.built.setdefault(name, []).append(expected_rows(rows))
        MartProject(self.engine.settings, self.store, self.definitions.marts).build(
            self.engine.address(),
            self.store,
            name,
            full_refresh=full_refresh,
            when_written=when_written,
        )
        assert head is not None
        self.current[name] = head.table_id, head.version
        self.built[name] = [expected_rows(rows)]

    def do_topic(self, operation: Part) -> None:
        """Delete the topic of a sink and create it again, by hand."""
        asset = self.definitions.sinks[operation["node"]]
        if asset.name in self.topics:
            self.topics[asset.name].recreate()

    def do_backup(self, _: Part) -> None:
        folder = self.folder.with_name(f"{self.folder.name}-backup")
        shutil.rmtree(folder, ignore_errors=True)
        # Files that are being replaced, such as records of workers, vanish during the copy.
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns(".*.json.*"))
        known = deepcopy((self.sent, self.histories, self.promoted, self.built))
        self.backup = Backup(folder, *known)
        shutil.rmtree(self.backup.marts, ignore_errors=True)
        copy_marts(self.store, self.backup.marts)

    def do_restore(self, operation: Part) -> None:
        """Replace the tables of sources and nodes by those of the backup.

        The outside system then sends the rows that a source lost once more, in one arrival. With
        `first`, a further arrival follows before anything continues from the restored tables. With
        `marts`, the tables of marts are restored, too. With `running`, the same process continues,
        which has the tables open.
        """
        if self.backup is None:
            return
        self.current.clear()
        if operation.get("marts"):
            restore_marts(self.store, self.backup.marts)
            self.built = deepcopy(self.backup.built)
        names = operation["names"] or [*self.project.sources, *self.nodes]
        if not operation["names"]:
            shutil.rmtree(self.folder)
            shutil.copytree(self.backup.folder, self.folder)
        for name in names:
            if operation["names"]:
                for table in self.tables(name):
                    self._restore_table(table)
            if name in self.sent:
                lost = [a for a in self.sent[name][len(self.backup.sent[name]) :] if a.rows]
                self.sent[name] = deepcopy(self.backup.sent[name])
                if lost and operation["again"]:
                    rows = [row for arrival in lost for row in arrival.rows]
                    self.sent[name].append(Sent(lost[-1].clock, rows))
            elif name in self.definitions.assets:
                self.histories[name] = deepcopy(self.backup.histories.get(name, AssetHistory()))
                self.promoted.pop(name, None)
                if name in self.backup.promoted:
                    self.promoted[name] = deepcopy(self.backup.promoted[name])
        if not operation.get("running"):
            self.reopen()
        if (arrival := operation.get("first")) is not None:
            self.sent[arrival["source"]].append(Sent(arrival["clock"], list(arrival["rows"])))
            names = [*names, arrival["source"]]
        for name in dict.fromkeys(names):
            if name in self.sent:
                self.ingest(name)

    def tables(self, name: str) -> Sequence[str]:
        if name in self.definitions.assets:
            return self.definitions.assets[name].own_tables
        if name in self.definitions.sinks or name in self.definitions.marts:
            return []
        source = self.definitions.source(name)
        tables = [source.timeline_table, source.log_table, source.dead_letters_table]
        more = source.own_tables if isinstance(source, DerivedSource) else []
        return list(dict.fromkeys([*tables, *more]))

    def state_of(self, name: str) -> object:
        """Return a value that differs if the definitions, or a table of a source or node or of its
        bases, have changed."""
        bases = [] if name in self.sent else bases_of(self.nodes[name])
        tables = [table for each in (name, *bases) for table in self.tables(each)]
        folders = [self.folder / table / "_delta_log" for table in tables]
        changed = [folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders]
        published = {asset: len(topic.records) for asset, topic in self.topics.items()}
        known = str(self.sent.get(name)), str(self.histories), str(published), str(self.built)
        return id(self.definitions), changed, known

    def _restore_table(self, table: str) -> None:
        assert self.backup is not None
        shutil.rmtree(self.folder / table, ignore_errors=True)
        if (self.backup.folder / table).exists():
            shutil.copytree(self.backup.folder / table, self.folder / table)

    def do_maintain(self, operation: Part) -> None:
        retention = 0 if operation["vacuum"] else RETENTION
        error = combine_errors(list(maintain_tables(self.store, retention=retention)))
        if error is not None:
            raise error


def _erased_value(operation: Part) -> tuple[str, str]:
    """Return the column and its value that select the rows of an erasure."""
    return ("k", operation["key"]) if "key" in operation else ("id", operation["id"])


def _recorded(commit: StateCommit) -> Windows:
    """Return the windows that a commit recomputed by its own record."""
    return commit.recomputed_ranges or None


def _micros(seconds: int) -> int:
    return EPOCH_MICROS + seconds * SECOND
