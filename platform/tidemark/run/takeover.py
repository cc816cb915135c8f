"""Decide whether a run can continue from data that another definition has stored.

`define.identity.parts` defines the effect of changing each part of a definition. After a change of
windows, keys or aggregates, for example, the stored data is not usable. The asset is then stale
(`store.lineage`): its runs stop with an error and change nothing. Runs are possible again when the
new definition has recreated the tables (`rebuild`, or a backfill of everything). After a change of
other parts, such as the function, the definition in the code takes over, and a stream with the
earlier definition ends itself.

The rows of a roll-up can be computed from its base at any time. If the roll-up's windows, keys or
aggregates changed, or if the base was restored from a backup, its next run replaces all rows
(`store.commits.rollup_generation`).
"""

from tidemark.base.errors import DefinitionChangedError, DefinitionError
from tidemark.compute.late_rows import find_changed_types
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import Change, Effect, combined_effect
from tidemark.store import lineage
from tidemark.store.asset import Asset
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.committers.values import Head
from tidemark.store.lineage import Lineage, StaleError, WarehouseReader


def check_definition(asset: Asset, newest_commit: StateCommit, *, pinned_definition: bool) -> None:
    """Raise an error if this asset's definition can't continue from the newest commit.

    Args:
        pinned_definition: true if this very definition has run the asset before. Any other
            definition of the newest commit then raises an error.

    Raises:
        StaleError: runs can't continue from the tables of the earlier definition.
        DefinitionChangedError: `pinned_definition` is true, and another definition made the commit.
        DefinitionError: columns of the late table would get other types.
    """
    if newest_commit.definition in ("", compute_fingerprint(asset.counting_transform)):
        return
    if pinned_definition:
        raise _changed_error(asset.counting_transform.name)
    stale = Lineage(WarehouseReader(asset.warehouse)).of_definition(asset.transform, newest_commit)
    if stale is not None:
        raise StaleError(stale)
    if not asset.rolls_up and combined_effect(find_changes(asset, newest_commit)) is Effect.FORWARD:
        _check_late_columns(asset)


def renew_rollup(asset: Asset, *, pinned_definition: bool) -> None:
    """Give a roll-up's table a new identity if its definition or its base's history has changed.

    The next run then replaces all rows of the table, even if the base has committed nothing since.

    Args:
        pinned_definition: true if this very definition has run the roll-up before. A change then
            raises an error.
    """
    warehouse = asset.warehouse
    table = asset.transform.published_table
    head = warehouse.find_head(table)
    if head is None or (kind := _required_kind(asset, head)) == head.kind:
        return
    if pinned_definition:
        raise _changed_error(asset.transform.name)
    warehouse.set_properties(table, {rollup_generation.PROPERTY: kind})
    asset.table_id = asset.read_table_id()


def is_renewed(asset: Asset) -> bool:
    """Return whether a roll-up's next run replaces all rows.

    It does if the definition has changed, or if the base has another history.
    """
    head = asset.warehouse.find_head(asset.transform.published_table)
    return head is not None and rollup_generation.identity_suffix(
        head.kind
    ) != rollup_generation.identity_suffix(_required_kind(asset, head))


def find_changes(asset: Asset, newest_commit: StateCommit) -> list[Change]:
    """Return the differences between an asset's definition and the one that made its newest commit.

    The list is empty before the first commit.
    """
    reader = WarehouseReader(asset.warehouse)
    return Lineage(reader).definition_changes(asset.counting_transform, newest_commit)


def _check_late_columns(asset: Asset) -> None:
    """Raise an error if the definition gives another type to a column of the late table."""
    changed_types = find_changed_types(asset.warehouse, asset.counting_transform, asset.log)
    if changed_types:
        name = asset.counting_transform.name
        raise DefinitionError(
            f"The function of '{name}' now gives other types to columns of the late table: "
            f"{', '.join(changed_types)}. Give these columns other names, or recreate the tables: "
            f"run `tidemark rebuild {name}`, then `tidemark rebuild {name} --promote`."
        )


def _required_kind(asset: Asset, head: Head) -> str:
    """Return the kind of a roll-up's table once its windows have the asset's definition.

    The kind is a text that identifies the definition (`store.commits.rollup_generation`).
    """
    follows_base = lineage.follows_base(asset)
    return rollup_generation.next_generation(head.kind, asset.transform, follows_base=follows_base)


def _changed_error(name: str) -> DefinitionChangedError:
    return DefinitionChangedError(
        f"This run has an earlier definition of '{name}' than another run, so it ends. Start it "
        "again to use the new definition."
    )
