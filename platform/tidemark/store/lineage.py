"""Determine whether tables are stale: made from a history or a definition that no longer exists.

Each commit that others build on has an identity. A node that continues from a commit stores this
identity with the commit's number, and compares it first:

| node | made from | stored in |
| --- | --- | --- |
| asset | an arrival of its source | the coverage of its newest commit |
| asset | a definition | the newest commit (the fingerprint), its first commit (the parts) |
| derived source | an arrival of each base, and the derivation | the newest step |
| chain | in addition, a run of its asset | the newest step |
| roll-up | a run of its base | its row in the ledger |
| sink, Delta connector | a version of a table | the position in the topic, in the timeline |

The numbers alone prove nothing: after a table was restored from a backup, recreated, or recorded
again with lower watermarks, its next commits get the same numbers. If an identity differs, the node
is *stale*. It then refuses to continue, and so do the nodes that depend on it, until the command in
`Stale.remedy` has recomputed it. A roll-up and a sink need no command: the next run of the roll-up
replaces all windows, and the sink begins a new epoch.

An asset is not stale after every change of its definition, only if runs can't continue from its
tables (`define.identity.parts` defines the effect of each change).

Histories only differ from some commit on. An equal identity therefore shows that all earlier
commits are equal, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import MARKER
from tidemark.define.identity.derivation import derivation_fingerprint
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import Change, Effect, Part, combined_effect, compare_parts
from tidemark.define.rollup import base_transform
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.conditions import Condition, number_is
from tidemark.store.commits.kinds import from_json
from tidemark.store.event_log.steps import Step, TakenResults
from tidemark.store.warehouse import Warehouse

_MAX_SHOWN_CHANGES = 3


class TableReader(Protocol):
    """Reads tables without the engine. Each method returns None if the table does not exist."""

    def read_rows(
        self, table: str, bounds: Sequence[Condition], columns: Sequence[str]
    ) -> pa.Table | None:
        """Return some columns of the rows that satisfy all conditions."""
        ...

    def max_value(self, table: str, column: str) -> int | None:
        """Return the greatest number in a column; also None if the column has no value."""
        ...

    def table_id(self, table: str) -> str | None:
        """Return the identity of a table, which a table keeps until it is dropped."""
        ...


@dataclass(frozen=True)
class Stale:
    """A node whose tables were made from a history or a definition that no longer exists.

    Args:
        node: the name of the asset or of the derived source.
        cause: the difference, as a sentence without its period.
        remedy: the commands that recompute the node, as a sentence without its period.
    """

    node: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"'{self.node}' is stale: {self.cause}. {self.remedy}."


class StaleError(DataError):
    """Tables that can't be continued, because their bases or their definition have changed."""

    def __init__(self, stale: Stale) -> None:
        super().__init__(f"{stale} Nothing was changed.")
        self.stale = stale


@dataclass(frozen=True)
class WarehouseReader:
    """Reads the tables of a warehouse."""

    warehouse: Warehouse

    def read_rows(
        self, table: str, bounds: Sequence[Condition], columns: Sequence[str]
    ) -> pa.Table | None:
        if not self.warehouse.has_table(table):
            return None
        return self.warehouse.load_rows(table, *bounds, columns=columns)

    def max_value(self, table: str, column: str) -> int | None:
        if self.warehouse.has_table(table):
            return self.warehouse.max_value(table, column)
        return None

    def table_id(self, table: str) -> str | None:
        head = self.warehouse.find_head(table)
        return None if head is None else head.table_id


@dataclass(frozen=True)
class Lineage:
    """Compares nodes with their bases."""

    tables: TableReader

    def of_source(self, source: Source, step: Step | None = None) -> Stale | None:
        """Return why a source is stale; None if it is not. Only derived sources can be stale.

        Args:
            step: the newest step of a derived source, if the caller has read it.
        """
        if not isinstance(source, DerivedSource):
            return None
        step = step or self._newest_step(source)
        if step is not None:
            for cause in self._find_differences(source, step):
                return Stale(source.name, cause, rebuild_advice(source.name))
        return self._of_bases(source)

    def of_asset(self, definition: Definition, commit: StateCommit | None = None) -> Stale | None:
        """Return why an asset is stale; None if it is not.

        A roll-up is stale if its base is. A changed definition of its own does not make it stale:
        its next run then replaces all windows.

        Args:
            commit: the newest commit of the asset's state, if the caller has read it. (A roll-up
                has the state of its base.)
        """
        transform = base_transform(definition)
        commit = commit or self.newest_commit(transform)
        stale = None if commit is None else self._of_commit(transform, commit)
        stale = stale or self.of_source(transform.source)
        if stale is None:
            return None
        return stale_through(definition.name, stale)

    def of_definition(self, definition: Definition, commit: StateCommit) -> Stale | None:
        """Return that runs can't continue from a commit of another definition; None if they can.

        Args:
            commit: the newest commit of the asset's state.
        """
        transform = base_transform(definition)
        if commit.definition == compute_fingerprint(transform):
            return None
        changes = self.definition_changes(transform, commit)
        if combined_effect(changes) is not Effect.REBUILD:
            return None
        name = transform.name
        remedy = f"`tidemark diff {name}` shows which windows would change. {rebuild_advice(name)}"
        return stale_through(definition.name, Stale(name, _describe_changes(changes), remedy))

    def definition_changes(self, transform: WindowedTransform, commit: StateCommit) -> list[Change]:
        """Return the differences between an asset's definition and the one that made a commit.

        The list is empty before the first commit.
        """
        if commit.defined < 0:
            return []
        first = self._read_commit(transform, commit.defined)
        recorded_parts: Mapping[str, Part] = {}
        if first is not None and first.parts is not None:
            recorded_parts = first.parts
        changes = compare_parts(recorded_parts, transform)
        if commit.allows_changes:
            return changes
        effective_changes = list[Change]()
        for change in changes:
            if change.effect is Effect.FORWARD:
                change = replace(change, effect=Effect.REBUILD)
            effective_changes.append(change)
        return effective_changes

    def changed_log(self, transform: WindowedTransform, commit: StateCommit) -> str | None:
        """Return how the present event log differs from the one that a commit has counted.

        Return None if it does not differ.
        """
        newest = commit.after.newest_position
        return self._changed_arrival(transform.source, newest.arrival, newest.arrival_id)

    def newest_commit(self, definition: Definition) -> StateCommit | None:
        """Return the newest commit of an asset's state; None if it has none."""
        newest = self.tables.max_value(definition.state_table, "commit_number")
        if newest is None:
            return None
        return self._read_commit(definition, newest)

    def _of_commit(self, transform: WindowedTransform, commit: StateCommit) -> Stale | None:
        """Return that runs can't continue from a commit; None if they can."""
        stale = self.of_definition(transform, commit)
        if stale is not None:
            return stale
        cause = self.changed_log(transform, commit)
        if cause is None:
            return None
        return Stale(transform.name, cause, backfill_advice(transform.name))

    def _newest_step(self, source: DerivedSource) -> Step | None:
        newest = self.tables.max_value(source.timeline_table, "arrival")
        if newest is None:
            return None
        bounds = [number_is("arrival", newest)]
        rows = self.tables.read_rows(source.timeline_table, bounds, ["position"])
        if rows is not None:
            return Step.of_position(rows["position"][0].as_py())
        return None

    def _find_differences(self, source: DerivedSource, step: Step) -> Iterator[str]:
        """Yield the differences between what a step was made from and what its bases have now."""
        if step.derivation != derivation_fingerprint(source):
            yield (
                "its definition has changed, and its existing rows were computed by the earlier "
                "one, which you can also restore"
            )
        for base in source.base_sources:
            taken = step.bases.get(base.name)
            if taken is None:
                continue
            table_id = self.tables.table_id(base.timeline_table)
            if table_id != taken.table_id:
                change = "dropped" if table_id is None else "dropped and ingested again"
                yield f"'{base.name}' was {change} after '{source.name}' had read it"
                continue
            cause = self._changed_arrival(base, taken.number, taken.arrival_id)
            if cause is not None:
                yield cause
        asset = source.derivation.asset
        if asset is not None and step.results is not None:
            yield from self._changed_run(asset, step.results)

    def _of_bases(self, source: DerivedSource) -> Stale | None:
        """Return that a derived source depends on a stale node; None if it does not."""
        asset = source.derivation.asset
        if asset is not None:
            stale = self.of_asset(asset)
            return None if stale is None else stale_through(source.name, stale)
        for base in source.base_sources:
            stale = self.of_source(base)
            if stale is not None:
                return stale_through(source.name, stale)
        return None

    def _changed_arrival(self, source: Source, number: int, arrival_id: str) -> str | None:
        """Return how a source's timeline differs from one that has a given arrival.

        Return None if it does not differ.
        """
        if number < 0:
            return None
        timeline = source.timeline_table
        rows = self.tables.read_rows(timeline, [number_is("arrival", number)], ["arrival_id"])
        if rows is None:
            return f"the table '{timeline}' is missing, but its arrival {number:,} was read"
        if rows.num_rows == 0:
            newest = self.tables.max_value(timeline, "arrival")
            through = "has no arrivals" if newest is None else f"ends with arrival {newest:,}"
            return (
                f"'{source.name}' {through}, but its arrival {number:,} was read. An earlier copy "
                "of its tables was restored"
            )
        if rows["arrival_id"][0].as_py() == arrival_id:
            return None
        return (
            f"'{source.name}' has another arrival {number:,} than the one that was read. Its "
            "tables were restored from a backup, or its watermarks were lowered"
        )

    def _changed_run(self, asset: Definition, results: TakenResults) -> Iterator[str]:
        """Yield the difference if an asset's state lacks a run whose results were read."""
        if results.commit < 0:
            return
        commit = self._read_commit(asset, results.commit)
        if commit is None:
            yield (
                f"'{asset.name}' no longer has the run {results.run[:8]}, whose windows were read. "
                "An earlier copy of its tables was restored, or it was dropped"
            )
        elif commit.run != results.run:
            yield (
                f"'{asset.name}' has the run {commit.run[:8]} in place of the run "
                f"{results.run[:8]}, whose windows were read. Its tables were restored from a "
                "backup, or it was dropped"
            )

    def _read_commit(self, definition: Definition, number: int) -> StateCommit | None:
        table = definition.state_table
        bounds = [number_is("commit_number", number)]
        rows = self.tables.read_rows(table, bounds, ["commit_number", MARKER])
        if rows is None:
            return None
        commit_texts = rows[MARKER].drop_null().to_pylist()
        if not commit_texts:
            return None
        return from_json(commit_texts[0])


def base_run_record(asset: Asset, run: str) -> dict[str, int]:
    """Return the record of the base's run that a commit to a roll-up's table was made from.

    The record is a Delta transaction (`Vouches`), so it is written with the commit.
    """
    return {_base_run_app(asset): _run_number(run)}


def follows_base(asset: Asset) -> bool:
    """Return whether a roll-up's base still has the run that the roll-up's table was made from."""
    table = asset.transform.published_table
    number = asset.warehouse.transaction_version(table, asset.commit_app)
    if number < 0:
        return True
    commit = asset.state.find_commit(number)
    recorded = asset.warehouse.transaction_version(table, _base_run_app(asset))
    return commit is not None and recorded == _run_number(commit.run)


def _base_run_app(asset: Asset) -> str:
    return f"{asset.commit_app} base run"


def _run_number(run: str) -> int:
    """Return the first 60 bits of a run's id, because the version of a transaction is a number."""
    return int(run[:15], 16)


def demand_current_asset(
    warehouse: Warehouse, definition: Definition, newest_commit: StateCommit
) -> None:
    """Raise `StaleError` if an asset is stale.

    Args:
        newest_commit: the newest commit of the asset's state.
    """
    stale = Lineage(WarehouseReader(warehouse)).of_asset(definition, newest_commit)
    if stale is not None:
        raise StaleError(stale)


def demand_current_source(warehouse: Warehouse, source: Source) -> None:
    """Raise `StaleError` if a source is stale."""
    stale = Lineage(WarehouseReader(warehouse)).of_source(source)
    if stale is not None:
        raise StaleError(stale)


def is_stale(asset: Asset, newest_commit: StateCommit) -> bool:
    """Return whether an asset is stale.

    Args:
        newest_commit: the newest commit of the asset's state.
    """
    stale = Lineage(WarehouseReader(asset.warehouse)).of_asset(asset.transform, newest_commit)
    return stale is not None


def is_of_another_log(asset: Asset, newest_commit: StateCommit) -> bool:
    """Return whether an asset has counted arrivals of another event log than the present one.

    Positions in the two logs can't be compared.

    Args:
        newest_commit: the newest commit of the asset's state.
    """
    cause = Lineage(WarehouseReader(asset.warehouse)).changed_log(
        asset.counting_transform, newest_commit
    )
    return cause is not None


def rebuild_advice(name: str) -> str:
    return (
        f"Run `tidemark rebuild {name}`, which computes it again next to the present tables, and "
        f"then `tidemark rebuild {name} --promote`"
    )


def backfill_advice(name: str) -> str:
    return f"Run `tidemark backfill {name}`, which recomputes it from the event log"


def stale_through(name: str, stale: Stale) -> Stale:
    """Return that a node is stale, because it reads another node that is, or is that node."""
    if stale.node == name:
        return stale
    return Stale(name, f"it reads '{stale.node}', which is stale: {stale.cause}", stale.remedy)


def _describe_changes(changes: Sequence[Change]) -> str:
    differences = ", ".join(str(change) for change in changes[:_MAX_SHOWN_CHANGES])
    hidden = len(changes) - _MAX_SHOWN_CHANGES
    if hidden > 0:
        differences += f" and {hidden} more"
    # An expression of a definition may have several lines.
    one_line = differences.replace("\n", "\\n")
    return (
        f"its tables were made by another definition, which you can also restore. It differs in "
        f"{one_line}"
    )
