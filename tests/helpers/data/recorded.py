"""A published table that comes again, run by run: what an engine wrote once, for many tests.

The tables are those that the runs have written, and the logs of the published table and of its
panes have as many of their commits as have been played. So whoever looks sees them grow as they
grew then, without an engine.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable

from tidemark.define.sink import Sink
from tidemark.define.transform import WindowedTransform
from tidemark.store.warehouse import Warehouse


@dataclass(frozen=True)
class Recorded:
    """What runs have published of an asset.

    Args:
        marks: after each run, the versions of the published table and of its panes.
    """

    warehouse: Warehouse
    asset: WindowedTransform
    marks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def mark(self) -> None:
        """Note that a run has ended."""
        asset = self.asset
        self.marks.append(
            (self.warehouse.version(asset.table), self.warehouse.version(asset.panes_table))
        )

    def play(self, folder: Path) -> "Played":
        """It once more, in a folder of its own, with empty tables."""
        there = Path(self.warehouse.location.removeprefix("file://"), self.warehouse.database)
        played = Played(folder, self.warehouse.database, self.asset, there, tuple(self.marks))
        played.begin()
        return played


@dataclass(frozen=True)
class Played:
    """A recorded asset, as far as it has been played.

    Args:
        recorded: the folder of what was recorded.
        marks: those of all runs.
        ahead: those of the runs to come.
    """

    folder: Path
    database: str
    asset: WindowedTransform
    recorded: Path
    marks: Sequence[tuple[int, int]]
    ahead: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def logs(self) -> tuple[Path, ...]:
        """The logs of the published table and of its panes."""
        tables = (self.asset.table, self.asset.panes_table)
        return tuple(self.folder / self.database / table / "_delta_log" for table in tables)

    @property
    def warehouse(self) -> Warehouse:
        """The tables as they are, for who asks the engine for nothing."""
        none: Any = None
        return Warehouse(none, str(self.folder), self.database, registered=False)

    def run(self, count: int = 1) -> bool:
        """Let so many runs more have ended; whether there was one."""
        runs = self.ahead[:count]
        del self.ahead[:count]
        for log, version in zip(self.logs, runs[-1] if runs else (), strict=False):
            for commit in log.glob("*.ahead"):
                if int(commit.stem) <= version:
                    commit.rename(commit.with_suffix(".json"))
        return bool(runs)

    def begin(self) -> None:
        """Let no run have ended yet, whatever was played before."""
        shutil.rmtree(self.folder / self.database, ignore_errors=True)
        shutil.copytree(self.recorded, self.folder / self.database)
        for log in self.logs:
            for commit in log.glob("*.json"):
                if int(commit.stem):
                    commit.rename(commit.with_suffix(".ahead"))
        self.ahead[:] = self.marks

    def anew(self, *tables: str) -> None:
        """Let these tables be others from now on, by the same names."""
        for table in tables:
            path = self.folder / self.database / table
            old, new = str(DeltaTable(path).metadata().id), str(uuid4())
            for commit in [*(path / "_delta_log").glob("*.*")]:
                if commit.suffix in (".json", ".ahead"):
                    commit.write_text(commit.read_text().replace(old, new))

    def to(self, outlet: Sink, accumulation: str) -> WindowedTransform:
        """The asset with this accumulation, publishing there.

        What is published does not depend on the accumulation; the panes are those of discarding.
        """
        return replace(self.asset, sink=outlet, accumulation=accumulation)
