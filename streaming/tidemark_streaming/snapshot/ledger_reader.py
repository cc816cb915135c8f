"""Read the ledger's rows, and determine which assets are behind.

Except for `count_runs`, only runs of an asset's present tables count. Runs from before the asset
was dropped and recreated have another table id.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from tidemark.store import ledger
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.conditions import Condition, Equals, at_least, less_than, text_field
from tidemark.store.rows import to_dicts
from tidemark_streaming.snapshot.tables import Tables

HAS_ALL_WINDOWS = (text_field("mode") == "incremental") | ds.field("window_from").is_null()
"""Runs after which all windows are up to date. A run of a range leaves windows outside the range as
they are."""


class LedgerReader:
    """Reads the ledger. Each call reads the rows that it needs.

    Args:
        tables: the tables of the database.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def assets_behind(self, assets: Iterable[str], newest: int) -> list[str]:
        """Return the assets that are not up to date through the arrival `newest`."""
        names = list(assets)
        # File statistics skip older runs, however long the ledger is.
        commits = at_least("through_arrival", newest)
        processed = self._find_newest_runs(commits, _is_of_assets(names) & HAS_ALL_WINDOWS)
        # A run that replaces all windows, such as a rollback, may set the asset back to an earlier
        # arrival. Then the runs before it do not count.
        elsewhere = (text_field("mode") != "incremental") & ds.field("window_from").is_null()
        limited = self._find_newest_runs(
            less_than("through_arrival", newest), _is_of_assets(names) & elsewhere
        )
        table_ids = {asset: self.table_id(asset) or "" for asset in names}
        behind = list[str]()
        for asset, table_id in table_ids.items():
            if processed[asset, table_id] <= limited[asset, table_id]:
                behind.append(asset)
        return behind

    def _find_newest_runs(
        self, bound: Condition, where: ds.Expression
    ) -> defaultdict[tuple[str, str], int]:
        """Return the number of the newest run by asset and table id; -1 if there is none.

        Only runs whose row in the ledger meets both conditions count.
        """
        rows = self.tables.read(
            ledger.TABLE, ["asset", "table_id", "commit_number"], where, [bound]
        )
        newest = defaultdict[tuple[str, str], int](lambda: -1)
        if rows is None:
            return newest
        for row in rows.to_pylist():
            asset_id = row["asset"], row["table_id"]
            newest[asset_id] = max(newest[asset_id], row["commit_number"])
        return newest

    def unfollowed_rollups(self, bases: Mapping[str, str]) -> dict[str, int]:
        """Return the roll-ups that have not processed every run of their base.

        Each is returned with the number of the base's newest run.

        Args:
            bases: the bases of the roll-ups to check, by roll-up.
        """
        unfollowed = dict[str, int]()
        runs = self.tables.open_table(ledger.TABLE) if bases else None
        if runs is None:
            return unfollowed
        for name, base in bases.items():
            table_id = self.table_id(base)
            newest = _newest_recorded_run(runs, f"{base}/{table_id}")
            # The identity of a roll-up depends on its base and on its own table.
            table = self.tables.open_table(name)
            if table is None:
                followed = -1
            else:
                followed = _newest_recorded_run(runs, f"{name}/{table_id}{_own_table_id(table)}")
            if followed < newest:
                unfollowed[name] = newest
        return unfollowed

    def count_runs(self, assets: Iterable[str]) -> Counter[str]:
        """Return the number of runs of each asset in the ledger.

        Runs from before the asset was dropped and recreated count, too.
        """
        table = self.tables.read(ledger.TABLE, ["asset"], _is_of_assets(assets))
        return Counter([] if table is None else table["asset"].to_pylist())

    def read_runs(self, ended_from: int = 0) -> list[dict[str, Any]]:
        """Return the ledger's rows of runs that ended at `ended_from` or later, sorted by asset and
        run.

        Runs from before a drop are left out. Instants are in microseconds.
        """
        table = self.tables.read(
            ledger.TABLE, bounds=[at_least("ended_at", ended_from, instants=True)]
        )
        if table is None:
            return []
        table_ids = dict[str, str | None]()
        present = list[dict[str, Any]]()
        for row in to_dicts(table):
            asset = row["asset"]
            if asset not in table_ids:
                table_ids[asset] = self.table_id(asset)
            if row["table_id"] == table_ids[asset]:
                present.append(row)
        return sorted(present, key=lambda row: (row["asset"], row["commit_number"]))

    def runs_after(self, asset: str, commit_number: int) -> list[dict[str, Any]]:
        """Return the ledger's rows of an asset's runs after the number `commit_number`, in order.

        Instants are in microseconds.
        """
        bounds = [*self.current_rows(asset), at_least("commit_number", commit_number + 1)]
        table = self.tables.read(ledger.TABLE, bounds=bounds)
        if table is None:
            return []
        return to_dicts(table.sort_by("commit_number"))

    def runs_before(self, asset: str, commit_number: int) -> list[dict[str, Any]]:
        """Return the ledger's rows of an asset's runs before a commit, in order. The rows have only
        the columns `commit_number`, `watermark`, `window_from` and `reported`.
        """
        columns = ["commit_number", "watermark", "window_from", "reported"]
        bounds = [*self.current_rows(asset), less_than("commit_number", commit_number)]
        table = self.tables.read(ledger.TABLE, columns, bounds=bounds)
        if table is None:
            return []
        return to_dicts(table.sort_by("commit_number"))

    def last_run(self, asset: str) -> dict[str, Any] | None:
        """Return the ledger's newest row of an asset, with instants as datetimes; None if the asset
        has not run."""
        numbers = self.tables.read(ledger.TABLE, ["commit_number"], bounds=self.current_rows(asset))
        if numbers is None or not numbers.num_rows:
            return None
        newest = max(numbers["commit_number"].to_pylist())
        bounds = [*self.current_rows(asset), at_least("commit_number", newest)]
        rows = self.tables.read(ledger.TABLE, bounds=bounds)
        if rows is None:
            return None
        return next(iter(rows.to_pylist()), None)

    def current_rows(self, asset: str) -> list[Condition]:
        """Return conditions that select an asset's rows in the ledger or in the table of check
        results. Rows from before the asset was dropped and recreated do not meet them.
        """
        return [Equals("asset", asset), Equals("table_id", self.table_id(asset) or "")]

    def table_id(self, asset: str) -> str | None:
        """Return the id of an asset's state table, as in the ledger.

        Return None if the asset has not run since it was created.
        """
        state = self.tables.table_id(f"{asset}_state")
        if state is not None:
            return state
        # A roll-up has no state table. Its identity depends on its base, on its own table, and on
        # the generation of its windows.
        published = self.tables.open_table(asset)
        if published is None:
            return None
        suffix = _own_table_id(published)
        table = self.tables.read(
            ledger.TABLE, ["table_id", "started_at"], bounds=[Equals("asset", asset)]
        )
        if table is None:
            return None
        asset_runs = [row for row in table.to_pylist() if row["table_id"].endswith(suffix)]
        newest = max(asset_runs, key=lambda row: row["started_at"], default=None)
        if newest is None:
            return None
        return newest["table_id"]


def _is_of_assets(assets: Iterable[str]) -> ds.Expression:
    """Return the condition that only rows of the given assets meet."""
    return text_field("asset").isin(pa.array(assets, pa.string()))


def _own_table_id(table: DeltaTable) -> str:
    """Return the end of a roll-up's table id, `+TABLE`, which identifies its published table. The
    beginning identifies the state of its base."""
    metadata = table.metadata()
    return f"+{rollup_generation.table_identity(str(metadata.id), metadata.configuration)}"


def _newest_recorded_run(runs: DeltaTable, app: str) -> int:
    """Return the number of the newest run in the ledger; -1 before the first.

    Args:
        app: the asset and the table id of the run, as in the ledger's transactions.
    """
    commit_number = runs.transaction_version(app)
    if commit_number is None:
        return -1
    return commit_number


class NewRuns:
    """Returns the runs of an asset that are new since the last call of `take_runs`.

    The number of a run is unique only within one table id: after a drop, numbers start at 0 again.
    """

    def __init__(self, reader: LedgerReader, asset: str) -> None:
        self._reader = reader
        self._asset = asset
        self._last_table_id: str | None = None
        self._last_number = -1

    def take_runs(self) -> list[dict[str, Any]]:
        """Return the ledger's rows of the runs since the last call, in order.

        The first call returns all runs, and so does one after the asset was recreated.
        """
        table_id = self._reader.table_id(self._asset)
        last_number = -1
        if table_id == self._last_table_id:
            last_number = self._last_number
        rows = self._reader.runs_after(self._asset, last_number)
        # The asset may be recreated between the two reads.
        asset_runs = [row for row in rows if row["table_id"] == table_id]
        if asset_runs:
            self._last_table_id = table_id
            self._last_number = asset_runs[-1]["commit_number"]
        return asset_runs
