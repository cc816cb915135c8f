"""Rebuilds: build the tables of a changed definition in parallel, then swap them in.

`rebuild` counts all arrivals with the definition in the code, by ordinary runs. It writes to
separate tables under the name `<asset>__rebuild`; the asset itself continues with its earlier
definition. `promote` processes the arrivals since the rebuild, and swaps the tables (`swap`). A
stream with the earlier definition then ends itself. `roll_back` swaps again, to the tables as they
were before the promotion. `discard` deletes the rebuilt tables and the backup.
"""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidemark.base.errors import ConflictError, DataError
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import fingerprint
from tidemark.define.identity.parts import parts
from tidemark.define.rollup import base_transform
from tidemark.define.tables import REBUILD
from tidemark.define.transform import WindowedTransform
from tidemark.run import rebase, runner, swap
from tidemark.store import lineage
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.kinds import Promotion, Rollback, TableSwap
from tidemark.store.ledger import RunFacts
from tidemark.store.log_rewrite import wait_for_rewrite
from tidemark.store.upkeep.dropping import drop
from tidemark.store.warehouse import Warehouse

_MAX_ATTEMPTS = 60

_PUBLISH_WAIT_SECONDS = 10.0
"""Seconds that a promotion waits for a run to publish its stored commit."""


@dataclass(frozen=True)
class RebuildStatus:
    """Progress of the rebuilt tables.

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
    transform: Definition, name: str = REBUILD, verb: str = "rebuild"
) -> WindowedTransform:
    """Return a copy of the definition with separate tables, `<asset>__<name>`.

    Args:
        verb: for the error message if the asset is a roll-up: what to do with its base instead.
    """
    runner.refuse_rollup(transform, verb)
    return base_transform(transform).side(name)


def rebuild(warehouse: Warehouse, transform: Definition) -> RebuildStatus:
    """Build an asset's tables with the definition in the code, separate from the existing ones.

    If tables were already rebuilt with this definition, process only the arrivals since then.
    """
    side, asset = side_definition(transform), Asset(warehouse, transform)
    last = asset.state.last()
    if last.commit_number < 0:
        raise DataError(
            f"'{transform.name}' has not run yet: `tidemark run {transform.name}` creates its "
            "tables."
        )
    if not _is_continuable(warehouse, side):
        drop(warehouse, side)
        runner.backfill(warehouse, side)
    runner.incremental(warehouse, side)
    done = Asset(warehouse, side)
    return RebuildStatus(
        asset=transform.name,
        tables=list(swap.list_versions(done)),
        through=done.state.last().after.through,
        current=last.after.through,
        windows=warehouse.take(side.table, columns=["commit_number"]).num_rows,
        quarantined=swap.count_rows(warehouse, side.quarantine_table),
    )


def promote(warehouse: Warehouse, transform: Definition, *, keep_backup: bool = True) -> RunFacts:
    """Replace an asset's tables by the rebuilt ones, with all arrivals so far.

    Args:
        keep_backup: true to keep the earlier tables as a backup. Tables that a killed run has left
            half published can't be kept.

    Raises:
        DataError: nothing was rebuilt with the definition in the code; or a backup is requested,
            and the asset's newest run is not completely published.
        ConflictError: other runs of the asset kept committing first.
    """
    side = side_definition(transform)
    for _ in _retry():
        wait_for_rewrite(warehouse, transform.source)
        asset = Asset(warehouse, transform)
        last = _wait_until_published(asset)
        if isinstance(last, Promotion) and last.definition == fingerprint(side):
            # The promotion is already committed, perhaps by a process that was killed. Keep its
            # backup.
            return swap.finish(asset, last)
        if not _is_continuable(warehouse, side):
            raise DataError(
                f"There is nothing to promote: no tables were rebuilt with the definition of "
                f"'{transform.name}' in the code. Run `tidemark rebuild {transform.name}` first."
            )
        runner.incremental(warehouse, side)
        ready = Asset(warehouse, side)
        newest = ready.state.last()
        other_log = lineage.is_of_another_log(asset, last)
        if other_log or newest.after.at.arrival >= last.after.through:
            whole = asset.published_commit_number() >= last.commit_number
            if keep_backup and not whole:
                raise _unpublished_error(transform, last)
            found = swap.list_versions(ready)
            kept = swap.list_versions(asset) if keep_backup and whole else {}
            marker = Promotion(
                commit_number=last.commit_number + 1,
                before=last.after,
                after=newest.after,
                definition=newest.definition,
                defined=last.commit_number + 1,
                parts=parts(side),
                open_from=newest.open_from,
                promoted=last.commit_number + 1 if kept else -1,
                taken=_rename_tables(found, side, asset.transform),
                kept=kept,
            )
            with suppress(ConflictError):
                return _store_and_finish(asset, marker)
    raise rebase.conflict_error(transform.name, _MAX_ATTEMPTS)


def roll_back(warehouse: Warehouse, transform: Definition) -> RunFacts:
    """Restore an asset's tables as they were before their last promotion.

    The restored tables are up to date through the same arrival as before the promotion. The next
    run of the earlier definition processes later arrivals; runs of another definition are refused.
    """
    _ = side_definition(transform)
    for _ in _retry():
        wait_for_rewrite(warehouse, transform.source)
        asset = Asset(warehouse, transform)
        last = _wait_until_published(asset)
        promoted = _find_backup(asset, last)
        earlier = asset.state.at(promoted.commit_number - 1)
        recorded_parts = asset.state.recorded_parts(earlier)
        marker = Rollback(
            commit_number=last.commit_number + 1,
            before=last.after,
            after=earlier.after,
            definition=earlier.definition,
            defined=last.commit_number + 1 if recorded_parts else -1,
            parts=recorded_parts or None,
            open_from=earlier.open_from,
            taken={table: (table, version) for table, version in promoted.kept.items()},
        )
        with suppress(ConflictError):
            return _store_and_finish(asset, marker)
    raise rebase.conflict_error(transform.name, _MAX_ATTEMPTS)


def discard(warehouse: Warehouse, transform: Definition) -> list[str]:
    """Delete rebuilt tables that were not promoted, and the last promotion's backup.

    Return the names of the deleted tables.
    """
    tables = drop(warehouse, side_definition(transform))
    asset = Asset(warehouse, transform)
    if (last := asset.state.last()).promoted >= 0:
        asset.state.forget(last.promoted)
    return tables


def _is_continuable(warehouse: Warehouse, side: Definition) -> bool:
    asset = Asset(warehouse, side)
    last = asset.state.last()
    return last.definition == fingerprint(side) and not lineage.is_stale(asset, last)


def _retry() -> Iterator[None]:
    """Yield once for each attempt to commit, at most `_MAX_ATTEMPTS` times.

    After each attempt, wait for a random time. Its upper limit doubles from 0.05 to 1 second.
    """
    for n in range(_MAX_ATTEMPTS):
        yield
        time.sleep(random.uniform(0, min(1.0, 0.05 * 2**n)))


def _unpublished_error(transform: Definition, last: StateCommit) -> DataError:
    name = transform.name
    return DataError(
        f"The newest run of '{name}', commit {last.commit_number}, is not completely published "
        f"after {_PUBLISH_WAIT_SECONDS:.0f} seconds: it is still running, or it was killed. "
        "Nothing was promoted. Wait until it finishes. If it was killed, its stream or "
        f"`tidemark run {name}` completes it, with the definition that it used. "
        f"`tidemark rebuild {name} --promote --no-backup` promotes without a backup."
    )


def _store_and_finish(asset: Asset, marker: TableSwap) -> RunFacts:
    state = marker.taken[asset.transform.state_table]
    return swap.finish(asset, swap.store(asset, marker, state))


def _rename_tables(
    found: dict[str, int], side: Definition, own: Definition
) -> dict[str, tuple[str, int]]:
    """Return name and version of each rebuilt table, by the name of the table that it replaces."""
    names = [own.state_table, *swap.list_replaced(own)]
    theirs = [side.state_table, *swap.list_replaced(side)]
    pairs = zip(names, theirs, strict=True)
    return {name: (other, found[other]) for name, other in pairs if other in found}


def _find_backup(asset: Asset, last: StateCommit) -> Promotion:
    """Return the last promotion.

    Raises:
        DataError: the rows from before it can't be read any more, or no promotion kept them.
    """
    name = asset.transform.name
    if last.promoted < 0:
        raise DataError(
            f"'{name}' has no backup to restore: only `tidemark rebuild {name} --promote` keeps "
            "one."
        )
    promoted = asset.state.at(last.promoted)
    assert isinstance(promoted, Promotion)
    if asset.state.forgotten() >= last.promoted or not all(
        asset.warehouse.readable(table, version) for table, version in promoted.kept.items()
    ):
        raise DataError(
            f"'{name}' has no backup to restore: the backup of its last promotion was discarded, "
            "or maintenance deleted it after seven days."
        )
    return promoted


def _wait_until_published(asset: Asset) -> StateCommit:
    """Return the newest commit once it is published, or after `_PUBLISH_WAIT_SECONDS` seconds."""
    began, last = time.monotonic(), asset.state.last()
    if isinstance(last, TableSwap) and asset.published_commit_number() < last.commit_number:
        swap.finish(asset, last)
    while (
        asset.published_commit_number() < last.commit_number
        and time.monotonic() - began < _PUBLISH_WAIT_SECONDS
    ):
        time.sleep(0.05)
        last = asset.state.last()
    return last
