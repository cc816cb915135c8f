"""Rebuilds: build the tables of a changed definition in parallel, then swap them in.

`rebuild_tables` counts all arrivals with the definition in the code, by ordinary runs. It writes to
separate tables under the name `<asset>__rebuild`; the asset itself continues with its earlier
definition. `promote_tables` processes the arrivals since the rebuild, and swaps the tables
(`swap`). A stream with the earlier definition then ends itself. `roll_back` swaps again, to the
tables as they were before the promotion. `discard_tables` deletes the rebuilt tables and the
backup.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidemark.base.errors import ConflictError, DataError
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import describe_parts
from tidemark.define.rollup import base_transform
from tidemark.define.tables import REBUILD
from tidemark.define.transform import WindowedTransform
from tidemark.run import rebase, runner, swap
from tidemark.store import lineage
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import Promotion, Rollback, TableSwap
from tidemark.store.committers.conflicts import wait_after_conflict
from tidemark.store.ledger import RunFacts
from tidemark.store.log_rewrite import wait_for_rewrite
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.warehouse import Warehouse

_MAX_ATTEMPTS = 60

_PUBLISH_WAIT_SECONDS = 10.0
"""Seconds that a promotion waits for a run to publish its stored commit."""


@dataclass(frozen=True)
class RebuildStatus:
    """How far the rebuilt tables of an asset are up to date, compared with its own tables.

    Args:
        tables: names of the rebuilt tables.
        through: the arrival through which the rebuilt tables are up to date.
        current: the arrival through which the asset's own tables are up to date.
        windows: number of rows that a promotion would publish.
        quarantined: number of rows in the quarantine of the rebuilt tables.
    """

    asset: str
    tables: list[str]
    through: int
    current: int
    windows: int
    quarantined: int


def side_definition(
    definition: Definition, name: str = REBUILD, verb: str = "rebuild"
) -> WindowedTransform:
    """Return a copy of the definition with separate tables, `<asset>__<name>`.

    Args:
        verb: for the error message if the asset is a roll-up: what to do with its base instead.
    """
    runner.refuse_rollup(definition, verb)
    return base_transform(definition).with_side_tables(name)


def rebuild_tables(warehouse: Warehouse, definition: Definition) -> RebuildStatus:
    """Build an asset's tables with the definition in the code, separate from the existing ones.

    If tables were already rebuilt with this definition, process only the arrivals since then.
    """
    side = side_definition(definition)
    asset = Asset(warehouse, definition)
    newest_commit = asset.state.read_last_commit()
    if newest_commit.commit_number < 0:
        raise DataError(
            f"'{definition.name}' has not run yet: `tidemark run {definition.name}` creates its "
            "tables."
        )
    if not _is_continuable(warehouse, side):
        drop_asset(warehouse, side)
        runner.backfill(warehouse, side)
    runner.incremental(warehouse, side)
    rebuilt = Asset(warehouse, side)
    return RebuildStatus(
        asset=definition.name,
        tables=list(swap.list_versions(rebuilt)),
        through=rebuilt.state.read_last_commit().after.newest_arrival,
        current=newest_commit.after.newest_arrival,
        windows=warehouse.load_rows(side.published_table, columns=["commit_number"]).num_rows,
        quarantined=swap.count_rows(warehouse, side.quarantine_table),
    )


def promote_tables(
    warehouse: Warehouse, definition: Definition, *, keep_backup: bool = True
) -> RunFacts:
    """Replace an asset's tables by the rebuilt ones, with all arrivals so far.

    Args:
        keep_backup: true to keep the earlier tables as a backup. Tables that a killed run has left
            half published can't be kept.

    Raises:
        DataError: nothing was rebuilt with the definition in the code; or a backup is requested,
            and the asset's newest run is not completely published.
        ConflictError: other runs of the asset kept committing first.
    """
    side = side_definition(definition)
    for _ in _yield_attempts():
        wait_for_rewrite(warehouse, definition.source)
        asset = Asset(warehouse, definition)
        newest_commit = _wait_until_published(asset)
        next_number = newest_commit.commit_number + 1
        if isinstance(newest_commit, Promotion) and newest_commit.definition == compute_fingerprint(
            side
        ):
            # The promotion is already committed, perhaps by a process that was killed. Keep its
            # backup.
            return swap.finish_swap(asset, newest_commit)
        if not _is_continuable(warehouse, side):
            raise DataError(
                f"There is nothing to promote: no tables were rebuilt with the definition of "
                f"'{definition.name}' in the code. Run `tidemark rebuild {definition.name}` first."
            )
        runner.incremental(warehouse, side)
        rebuilt = Asset(warehouse, side)
        rebuilt_commit = rebuilt.state.read_last_commit()
        reads_another_log = lineage.is_of_another_log(asset, newest_commit)
        if (
            reads_another_log
            or rebuilt_commit.after.at.arrival >= newest_commit.after.newest_arrival
        ):
            if keep_backup and not _is_published(asset, newest_commit):
                raise _unpublished_error(definition, newest_commit)
            rebuilt_versions = swap.list_versions(rebuilt)
            backup = swap.list_versions(asset) if keep_backup else {}
            commit_info = Promotion(
                commit_number=next_number,
                before=newest_commit.after,
                after=rebuilt_commit.after,
                definition=rebuilt_commit.definition,
                defined=next_number,
                parts=describe_parts(side),
                open_from=rebuilt_commit.open_from,
                promoted=next_number if backup else -1,
                taken=_rename_tables(rebuilt_versions, side, asset.transform),
                kept=backup,
            )
            with suppress(ConflictError):
                return _store_and_finish(asset, commit_info)
    raise rebase.conflict_error(definition.name, _MAX_ATTEMPTS)


def roll_back(warehouse: Warehouse, definition: Definition) -> RunFacts:
    """Restore an asset's tables as they were before their last promotion.

    The restored tables are up to date through the same arrival as before the promotion. The next
    run of the earlier definition processes later arrivals; runs of another definition are refused.
    """
    _ = side_definition(definition)
    for _ in _yield_attempts():
        wait_for_rewrite(warehouse, definition.source)
        asset = Asset(warehouse, definition)
        newest_commit = _wait_until_published(asset)
        promotion = _find_backup(asset, newest_commit)
        earlier_commit = asset.state.read_commit(promotion.commit_number - 1)
        recorded_parts = asset.state.recorded_parts(earlier_commit)
        next_number = newest_commit.commit_number + 1
        commit_info = Rollback(
            commit_number=next_number,
            before=newest_commit.after,
            after=earlier_commit.after,
            definition=earlier_commit.definition,
            defined=next_number if recorded_parts else -1,
            parts=recorded_parts or None,
            open_from=earlier_commit.open_from,
            taken={table: (table, version) for table, version in promotion.kept.items()},
        )
        with suppress(ConflictError):
            return _store_and_finish(asset, commit_info)
    raise rebase.conflict_error(definition.name, _MAX_ATTEMPTS)


def discard_tables(warehouse: Warehouse, definition: Definition) -> list[str]:
    """Delete rebuilt tables that were not promoted, and the last promotion's backup.

    Return the names of the deleted tables.
    """
    tables = drop_asset(warehouse, side_definition(definition))
    asset = Asset(warehouse, definition)
    promotion = asset.state.read_last_commit().promoted
    if promotion >= 0:
        asset.state.forget_backup(promotion)
    return tables


def _is_continuable(warehouse: Warehouse, side: Definition) -> bool:
    asset = Asset(warehouse, side)
    newest_commit = asset.state.read_last_commit()
    return newest_commit.definition == compute_fingerprint(side) and not lineage.is_stale(
        asset, newest_commit
    )


def _yield_attempts() -> Iterator[None]:
    """Yield once for each attempt to commit, at most `_MAX_ATTEMPTS` times."""
    for attempt in range(_MAX_ATTEMPTS):
        yield
        wait_after_conflict(attempt)


def _unpublished_error(definition: Definition, newest_commit: StateCommit) -> DataError:
    name = definition.name
    return DataError(
        f"The newest run of '{name}', commit {newest_commit.commit_number}, is not completely "
        f"published after {_PUBLISH_WAIT_SECONDS:.0f} seconds: it is still running, or it was "
        "killed. "
        "Nothing was promoted. Wait until it finishes. If it was killed, its stream or "
        f"`tidemark run {name}` completes it, with the definition that it used. "
        f"`tidemark rebuild {name} --promote --no-backup` promotes without a backup."
    )


def _store_and_finish(asset: Asset, commit_info: TableSwap) -> RunFacts:
    state = commit_info.taken[asset.transform.state_table]
    return swap.finish_swap(asset, swap.store_swap(asset, commit_info, state))


def _rename_tables(
    versions: dict[str, int], side: Definition, definition: Definition
) -> dict[str, tuple[str, int]]:
    """Return name and version of each rebuilt table, by the name of the table that it replaces."""
    own_names = [definition.state_table, *swap.list_replaced(definition)]
    side_names = [side.state_table, *swap.list_replaced(side)]
    renamed = dict[str, tuple[str, int]]()
    for own_name, side_name in zip(own_names, side_names, strict=True):
        if side_name in versions:
            renamed[own_name] = (side_name, versions[side_name])
    return renamed


def _find_backup(asset: Asset, newest_commit: StateCommit) -> Promotion:
    """Return the last promotion.

    Raises:
        DataError: the rows from before it can't be read any more, or no promotion kept them.
    """
    name = asset.transform.name
    if newest_commit.promoted < 0:
        raise DataError(
            f"'{name}' has no backup to restore: only `tidemark rebuild {name} --promote` keeps "
            "one."
        )
    promotion = asset.state.read_commit(newest_commit.promoted)
    assert isinstance(promotion, Promotion)
    is_readable = all(
        asset.warehouse.is_readable(table, version) for table, version in promotion.kept.items()
    )
    if asset.state.newest_forgotten_backup() >= newest_commit.promoted or not is_readable:
        raise DataError(
            f"'{name}' has no backup to restore: the backup of its last promotion was discarded, "
            "or maintenance deleted it after seven days."
        )
    return promotion


def _wait_until_published(asset: Asset) -> StateCommit:
    """Return the newest commit once it is published, or after `_PUBLISH_WAIT_SECONDS` seconds."""
    deadline = time.monotonic() + _PUBLISH_WAIT_SECONDS
    newest_commit = asset.state.read_last_commit()
    if isinstance(newest_commit, TableSwap) and not _is_published(asset, newest_commit):
        swap.finish_swap(asset, newest_commit)
    while not _is_published(asset, newest_commit) and time.monotonic() < deadline:
        time.sleep(0.05)
        newest_commit = asset.state.read_last_commit()
    return newest_commit


def _is_published(asset: Asset, commit_info: StateCommit) -> bool:
    return asset.published_commit_number() >= commit_info.commit_number
