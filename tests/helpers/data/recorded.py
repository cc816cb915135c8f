"""A recorded asset that is replayed run by run, without an engine, in many tests.

The tables are those that the runs wrote. The transaction logs of the published table and its panes
contain only the commits that have been played, so readers see the tables grow as they did then.
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
    """The recorded runs of an asset.

    Args:
        marks: the versions of the published table and its panes after each run.
    """

    warehouse: Warehouse
    asset: WindowedTransform
    marks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def mark(self) -> None:
        """Record the end of a run."""
        asset = self.asset
        self.marks.append(
            (
                self.warehouse.newest_version(asset.published_table),
                self.warehouse.newest_version(asset.panes_table),
            )
        )

    def play(self, folder: Path) -> "Played":
        """Copy the recording to a folder, with empty tables. Return the copy."""
        there = Path(self.warehouse.location.removeprefix("file://"), self.warehouse.database)
        played = Played(folder, self.warehouse.database, self.asset, there, tuple(self.marks))
        played.begin()
        return played


@dataclass(frozen=True)
class Played:
    """A recorded asset after the runs that have been played.

    Args:
        recorded: the folder of the recording.
        marks: the marks of all runs.
        ahead: the marks of runs that have not been played.
    """

    folder: Path
    database: str
    asset: WindowedTransform
    recorded: Path
    marks: Sequence[tuple[int, int]]
    ahead: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def logs(self) -> tuple[Path, ...]:
        """The transaction logs of the published table and its panes."""
        tables = (self.asset.published_table, self.asset.panes_table)
        return tuple(self.folder / self.database / table / "_delta_log" for table in tables)

    @property
    def warehouse(self) -> Warehouse:
        """The current tables, for code that does not need the engine."""
        none: Any = None
        return Warehouse(none, str(self.folder), self.database, registered=False)

    def run(self, count: int = 1) -> bool:
        """Play the given number of further runs. Return whether there was one."""
        runs = self.ahead[:count]
        del self.ahead[:count]
        for log, version in zip(self.logs, runs[-1] if runs else (), strict=False):
            for commit in log.glob("*.ahead"):
                if int(commit.stem) <= version:
                    commit.rename(commit.with_suffix(".json"))
        return bool(runs)

    def begin(self) -> None:
        """Reset the tables to the state before the first run."""
        shutil.rmtree(self.folder / self.database, ignore_errors=True)
        shutil.copytree(self.recorded, self.folder / self.database)
        for log in self.logs:
            for commit in log.glob("*.json"):
                if int(commit.stem):
                    commit.rename(commit.with_suffix(".ahead"))
        self.ahead[:] = self.marks

    def anew(self, *tables: str) -> None:
        """Give these tables new table IDs, as if they were recreated."""
        for table in tables:
            path = self.folder / self.database / table
            old, new = str(DeltaTable(path).metadata().id), str(uuid4())
            for commit in [*(path / "_delta_log").glob("*.*")]:
                if commit.suffix in (".json", ".ahead"):
                    commit.write_text(commit.read_text().replace(old, new))

    def to(self, outlet: Sink, accumulation: str) -> WindowedTransform:
        """Return the asset with this sink and accumulation mode.

        The published table does not depend on the mode; the panes are those of discarding.
        """
        return replace(self.asset, sink=outlet, accumulation=accumulation)
