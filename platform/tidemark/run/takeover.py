"""Decide whether a run can continue from data that another definition has stored.

`define.parts` defines the effect of a change of each part. If windows, keys or aggregates changed,
the stored data is not usable. The run then stops with an error and changes nothing, until the
tables are recreated by the new definition (`rebuild`, or a backfill of everything). Otherwise the
definition in the code takes over, and a stream with the earlier definition ends itself.

A roll-up derives its windows, keys and aggregates from its base at any time. If they changed, it
recomputes its table automatically (`store.rollup_generation`).
"""

from tidemark.base.errors import DefinitionChanged, DefinitionError
from tidemark.compute.late_rows import misfits
from tidemark.define import parts
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark.define.parts import Change, Effect
from tidemark.store import rollup_generation
from tidemark.store.asset import Asset
from tidemark.store.commit_info import CommitInfo, Mode
from tidemark.store.committers import Head

_SHOWN = 3


def check(asset: Asset, last: CommitInfo, *, standing: bool) -> None:
    """Raise an error if this asset's definition can't continue from the newest commit.

    Args:
        standing: whether the asset was run by this very definition before.

    Raises:
        DefinitionChanged: `standing`, and another definition has run the asset since.
        DefinitionError: the stored data is incompatible with this definition.
    """
    if last.definition in ("", fingerprint(asset.counting)):
        return
    name = asset.counting.name
    if standing:
        raise _changed(name)
    found = since(asset, last)
    if asset.rolls_up:
        # A roll-up reads its base's partials, which contain no panes.
        found = [c for c in found if c.part != "accumulation"]
    worst = parts.combined_effect(found)
    odd: list[str] = []
    if worst is Effect.FORWARD and not asset.rolls_up:
        odd = misfits(asset.warehouse, asset.counting, asset.log)
    if odd:
        raise DefinitionError(
            f"The late table of '{name}' keeps events as its earlier function made them, of which "
            f"the present one makes other types: {', '.join(odd)}. Give the new column another "
            f"name, or make the tables anew with `tidemark rebuild {name}` and `--switch`."
        )
    if worst is Effect.NONE or (worst is Effect.FORWARD and last.mode is not Mode.BACK):
        return
    told = ", ".join(str(c) for c in found[:_SHOWN])
    told += f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise DefinitionError(
        f"The tables of '{name}' were made by another definition, which differs in {told}: no run "
        f"goes on with them. `tidemark changes {name}` tells which windows would change; "
        f"`tidemark rebuild {name}` makes them anew beside these, and `--switch` puts them in "
        "their place."
    )


def renew(asset: Asset, *, standing: bool) -> None:
    """Start a roll-up's table over if its definition makes windows of another kind.

    The next run then replaces all its windows, even if its base has committed nothing since.

    Args:
        standing: whether the roll-up was run by this very definition before.

    Raises:
        DefinitionChanged: `standing`, and another definition has run the roll-up since.
    """
    warehouse, table = asset.warehouse, asset.transform.table
    head = warehouse.head(table)
    if head is None or (kind := _kind(asset, head)) == head.kind:
        return
    if standing and head.kind:
        raise _changed(asset.transform.name)
    warehouse.committer.set_properties(table, {rollup_generation.PROPERTY: kind})
    asset.life = asset.lifetime()


def renews(asset: Asset) -> bool:
    """Return whether a roll-up's next run starts its table over."""
    head = asset.warehouse.head(asset.transform.table)
    return head is not None and rollup_generation.identity_suffix(
        head.kind
    ) != rollup_generation.identity_suffix(_kind(asset, head))


def of_another_log(asset: Asset, last: CommitInfo) -> bool:
    """Return whether the newest commit's arrivals are from another event log than the definition's.

    That is the case if the source had another name then.
    """
    if last.definition == fingerprint(asset.counting):
        return False
    return parts.reads_another_log(since(asset, last))


def since(asset: Asset, last: CommitInfo) -> list[Change]:
    """Return how an asset's definition differs from the one that made the newest commit.

    The list is empty if that commit does not record its definition.
    """
    if last.defined < 0:
        return []
    told = asset.state.at(last.defined).parts
    return [] if told is None else parts.compare_parts(told, asset.counting)


def _kind(asset: Asset, head: Head) -> str:
    """Return the kind of windows that a roll-up's table must have."""
    transform = asset.transform
    told = head.kind or rollup_generation.initial_generation(transform)
    if not head.kind and not _fits(transform, asset.warehouse.schema(transform.table).names):
        # An earlier Tidemark recorded no kind, so the columns are compared instead.
        told = "0-"
    return rollup_generation.next_generation(told, transform)


def _fits(transform: Definition, columns: list[str]) -> bool:
    """Return whether a published table has the keys and aggregates of a definition."""
    own = columns[columns.index("window_end") + 1 : columns.index("events")]
    return set(own) == {*transform.keys, *transform.aggregates}


def _changed(name: str) -> DefinitionChanged:
    return DefinitionChanged(
        f"The definition of '{name}' has changed, and another run has begun to follow it: this "
        "one, which goes by the earlier one, ends here."
    )
