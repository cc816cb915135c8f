"""Taking over: may a run go on with what was stored by another definition than its own?

What a change of a part means is told by `define.parts`. Where windows, keys or aggregates changed,
nothing can be gone on with: such a run ends with one sentence, and nothing is touched, until the
tables are made by the new definition (`rebuild`, or a backfill of all). Otherwise the definition
that is in the code takes over, and a stream that still goes by the earlier one ends itself.

A roll-up's own windows, keys and aggregates are made of its base at any time, so where they changed
it begins anew by itself (`store.kinds`).
"""

from tidemark.base.errors import DefinitionChanged, DefinitionError
from tidemark.compute.late_rows import misfits
from tidemark.define import parts
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark.define.parts import Change, Effect
from tidemark.store import kinds
from tidemark.store.asset import Asset
from tidemark.store.committers import Head
from tidemark.store.marker import Marker, Mode

_SHOWN = 3


def check(asset: Asset, last: Marker, *, standing: bool) -> None:
    """Refuse to go on, by this asset's definition, with what the newest commit has left.

    Args:
        standing: whether the asset was run by this very definition before.

    Raises:
        DefinitionChanged: another definition has run the asset since, and `standing`.
        DefinitionError: what is stored can't be gone on with.
    """
    if last.definition in ("", fingerprint(asset.counting)):
        return
    name = asset.counting.name
    if standing:
        raise _changed(name)
    found = since(asset, last)
    if asset.rolls_up:
        # It reads partials, in which panes are not.
        found = [c for c in found if c.part != "accumulation"]
    worst = parts.effect(found)
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
    """Begin a roll-up anew where its definition makes windows of another kind than its table has:
    all of them are replaced then, also where its base has committed nothing since.

    Args:
        standing: whether it was run by this very definition before.

    Raises:
        DefinitionChanged: another definition has run it since, and `standing`.
    """
    warehouse, table = asset.warehouse, asset.transform.table
    head = warehouse.head(table)
    if head is None or (kind := _kind(asset, head)) == head.kind:
        return
    if standing and head.kind:
        raise _changed(asset.transform.name)
    warehouse.committer.tell(table, {kinds.PROPERTY: kind})
    asset.life = asset.lifetime()


def renews(asset: Asset) -> bool:
    """Whether a roll-up's next run begins it anew."""
    head = asset.warehouse.head(asset.transform.table)
    return head is not None and kinds.suffix(head.kind) != kinds.suffix(_kind(asset, head))


def of_another_log(asset: Asset, last: Marker) -> bool:
    """Whether the newest commit stands at an arrival of another log than the definition's: that of
    a source that had another name."""
    if last.definition == fingerprint(asset.counting):
        return False
    return parts.of_another_log(since(asset, last))


def since(asset: Asset, last: Marker) -> list[Change]:
    """In what an asset's definition differs from the one that made the newest commit; nothing
    where that is not told."""
    if last.defined < 0:
        return []
    told = asset.state.at(last.defined).parts
    return [] if told is None else parts.changed(told, asset.counting)


def _kind(asset: Asset, head: Head) -> str:
    """The kind of windows that a roll-up's table is to have."""
    transform = asset.transform
    told = head.kind or kinds.first(transform)
    if not head.kind and not _fits(transform, asset.warehouse.schema(transform.table).names):
        # An earlier Tidemark told none; its columns tell something.
        told = "0-"
    return kinds.next_to(told, transform)


def _fits(transform: Definition, columns: list[str]) -> bool:
    """Whether a published table has the keys and aggregates of a definition."""
    own = columns[columns.index("window_end") + 1 : columns.index("events")]
    return set(own) == {*transform.keys, *transform.aggregates}


def _changed(name: str) -> DefinitionChanged:
    return DefinitionChanged(
        f"The definition of '{name}' has changed, and another run has begun to follow it: this "
        "one, which goes by the earlier one, ends here."
    )
