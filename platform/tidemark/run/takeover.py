"""Decide whether a run can continue from data that another definition has stored.

`define.identity.parts` defines the effect of changing each part of a definition. After a change of
windows, keys or aggregates, for example, the stored data is not usable. The run then stops with an
error and changes nothing. Runs are possible again when the new definition has recreated the tables
(`rebuild`, or a backfill of everything). After a change of other parts, such as the function, the
definition in the code takes over, and a stream with the earlier definition ends itself.

The rows of a roll-up can be computed from its base at any time. If the roll-up's windows, keys or
aggregates changed, or if the base was restored from a backup, its next run replaces all rows
(`store.commits.rollup_generation`).
"""

from tidemark.base.errors import DefinitionChangedError, DefinitionError
from tidemark.compute.late_rows import find_changed_types
from tidemark.define.identity import parts
from tidemark.define.identity.fingerprint import fingerprint
from tidemark.define.identity.parts import Change, Effect
from tidemark.store import lineage
from tidemark.store.asset import Asset
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.committers.values import Head

_MAX_SHOWN = 3


def check_definition(asset: Asset, last: StateCommit, *, pinned_definition: bool) -> None:
    """Raise an error if this asset's definition can't continue from the newest commit.

    Args:
        pinned_definition: true if this very definition has run the asset before. Any other
            definition of the newest commit then raises an error.
    """
    if last.definition in ("", fingerprint(asset.counting)):
        return
    name = asset.counting.name
    if pinned_definition:
        raise _changed_error(name)
    found = find_changes(asset, last)
    if asset.rolls_up:
        # A roll-up reads its base's partials, which contain no panes.
        found = [c for c in found if c.part != "accumulation"]
    worst = parts.combined_effect(found)
    odd: list[str] = []
    if worst is Effect.FORWARD and not asset.rolls_up:
        odd = find_changed_types(asset.warehouse, asset.counting, asset.log)
    if odd:
        raise DefinitionError(
            f"The function of '{name}' now gives other types to columns of the late table: "
            f"{', '.join(odd)}. Give these columns other names, or recreate the tables: run "
            f"`tidemark rebuild {name}`, then `tidemark rebuild {name} --promote`."
        )
    if worst is Effect.NONE or (worst is Effect.FORWARD and last.allows_changes):
        return
    differences = ", ".join(str(c) for c in found[:_MAX_SHOWN])
    differences += f" and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    raise DefinitionError(
        f"The tables of '{name}' were made by another definition, which differs in {differences}. "
        f"Runs can't continue from them. `tidemark diff {name}` shows which windows would change; "
        f"`tidemark rebuild {name}` builds separate new tables, and `--promote` then replaces the "
        "old ones."
    )


def renew_rollup(asset: Asset, *, pinned_definition: bool) -> None:
    """Give a roll-up's table a new identity if its definition or its base's history has changed.

    The next run then replaces all rows of the table, even if the base has committed nothing since.

    Args:
        pinned_definition: true if this very definition has run the roll-up before. A change then
            raises an error.
    """
    warehouse, table = asset.warehouse, asset.transform.table
    head = warehouse.head(table)
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
    head = asset.warehouse.head(asset.transform.table)
    return head is not None and rollup_generation.identity_suffix(
        head.kind
    ) != rollup_generation.identity_suffix(_required_kind(asset, head))


def is_of_another_log(asset: Asset, last: StateCommit) -> bool:
    """Return whether the newest commit's arrivals are from another event log than the definition's.

    They are if the source had another name at the time of the commit.
    """
    if last.definition == fingerprint(asset.counting):
        return False
    return parts.reads_another_log(find_changes(asset, last))


def find_changes(asset: Asset, last: StateCommit) -> list[Change]:
    """Return the differences between an asset's definition and the one that made its newest commit.

    The list is empty before the first commit.
    """
    if last.defined < 0:
        return []
    return parts.compare_parts(asset.state.recorded_parts(last), asset.counting)


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
