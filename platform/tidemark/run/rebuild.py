"""Rebuilds: a changed definition's tables are made beside those that are there, and then put in
their place.

`rebuild` counts all arrivals by the definition in the code, into tables of their own under the name
`<asset>__rebuild`, with runs like any other; the asset itself goes on by its earlier definition. A
`switch` takes in what arrived meanwhile and swaps (`swap`); a stream of the earlier definition then
ends itself. `back` swaps again, for what the tables had before the switch, and `discard` gives up
what is kept for either.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import fingerprint
from tidemark.define.parts import parts
from tidemark.define.rollup import counting
from tidemark.define.tables import REBUILD
from tidemark.define.transform import WindowedTransform
from tidemark.run import runner, swap, takeover
from tidemark.store import erasures
from tidemark.store.asset import Asset
from tidemark.store.dropping import drop
from tidemark.store.ledger import RunFacts
from tidemark.store.marker import Marker, Mode, Swap
from tidemark.store.warehouse import Warehouse

T = TypeVar("T")

_ATTEMPTS = 60
_ANEW = 5
"""Times that tables beside are begun anew, as events were erased meanwhile."""

_PATIENCE = 10.0
"""Seconds that a switch waits for a run to publish what it has stored."""


@dataclass(frozen=True)
class Rebuilt:
    """How far the tables beside an asset's are.

    Args:
        asset: the asset's name.
        tables: those beside, by name.
        through: the arrival through which they are complete.
        current: the same of the asset's own.
        windows: rows that would be published.
        quarantined: windows that would be withheld.
    """

    asset: str
    tables: list[str]
    through: int
    current: int
    windows: int
    quarantined: int


def beside(transform: Definition, name: str = REBUILD, verb: str = "rebuild") -> WindowedTransform:
    """The asset under whose name tables are made beside its own: the same definition.

    Args:
        name: what the tables are told by: `<asset>__<name>`.
        verb: what is done.

    Raises:
        DefinitionError: a roll-up, which follows its base.
    """
    if transform.follows is not None:
        raise DefinitionError(
            f"'{transform.name}' is a roll-up, made of what '{transform.follows}' has counted: "
            f"{verb} that, then run '{transform.name}', which follows it."
        )
    return counting(transform).side(name)


def rebuild(warehouse: Warehouse, transform: Definition) -> Rebuilt:
    """Make an asset's tables by the definition in the code beside those that are there; where that
    was begun, take in what arrived since.

    Raises:
        DefinitionError: a roll-up, or a definition that can't run.
        DataError: the asset has not run yet, so there is nothing to put tables beside.
        ConflictError: another rebuild works on the same tables.
    """
    side, asset = beside(transform), Asset(warehouse, transform)
    last = asset.state.last()
    if last.seq < 0:
        raise DataError(
            f"'{transform.name}' has not run yet: `tidemark run {transform.name}` makes its tables."
        )
    without_erased(warehouse, side, lambda: _made(warehouse, side))
    done = Asset(warehouse, side)
    return Rebuilt(
        asset=transform.name,
        tables=list(swap.versions(done)),
        through=done.state.last().after.through,
        current=last.after.through,
        windows=warehouse.take(side.table, columns=["seq"]).num_rows,
        quarantined=swap.count(warehouse, side.quarantine_table),
    )


def switch(warehouse: Warehouse, transform: Definition, *, way_back: bool = True) -> RunFacts:
    """Put what was rebuilt in the place of an asset's tables, with all that has arrived.

    Args:
        way_back: whether to keep what was there. Of tables that a killed run has left half
            published nothing can be kept.

    Raises:
        DataError: nothing was rebuilt by the definition in the code; or a way back is wanted, and
            the newest run of the asset is not published to its end.
        ConflictError: runs of the asset were quicker, time and again.
    """
    side = beside(transform)
    for _ in _attempts():
        asset = Asset(warehouse, transform)
        last = _published(asset)
        if last.mode is Mode.SWITCH and last.definition == fingerprint(side):
            # It was done before, perhaps by a process that was killed: what it keeps stays.
            return swap.finish(asset, last)
        if not _stands(warehouse, side):
            raise DataError(
                f"There is nothing to switch to: `tidemark rebuild {transform.name}` first makes "
                f"tables by the definition of '{transform.name}' in the code."
            )
        without_erased(warehouse, side, lambda: runner.incremental(warehouse, side))
        ready = Asset(warehouse, side)
        newest = ready.state.last()
        # Of another log it can't be told which is further.
        other_log = takeover.of_another_log(asset, last)
        if other_log or newest.after.at.arrival >= last.after.through:
            whole = asset.published() >= last.seq
            if way_back and not whole:
                raise _half_published(transform, last)
            found = swap.versions(ready)
            kept = swap.versions(asset) if way_back and whole else {}
            marker = Marker(
                mode=Mode.SWITCH,
                seq=last.seq + 1,
                before=last.after,
                after=newest.after,
                definition=newest.definition,
                defined=last.seq + 1,
                parts=parts(side),
                open_from=newest.open_from,
                switched=last.seq + 1 if kept else -1,
                swap=Swap(_renamed(found, side, asset.transform), kept),
            )
            with suppress(ConflictError):
                return _swapped(asset, marker)
    raise _quicker(transform)


def back(warehouse: Warehouse, transform: Definition) -> RunFacts:
    """Put what an asset's tables had before their last switch in the place of what they have.

    They then stand where they stood: what has arrived since is taken in by the next run of the
    earlier definition. Runs of another one are refused.

    Raises:
        DataError: there was no switch, or what was there before is not kept any more.
        ConflictError: runs of the asset were quicker, time and again.
    """
    _ = beside(transform)
    for _ in _attempts():
        asset = Asset(warehouse, transform)
        last = _published(asset)
        switched, kept = _kept(asset, last)
        earlier = asset.state.at(switched.seq - 1)
        told = None if earlier.defined < 0 else asset.state.at(earlier.defined).parts
        marker = Marker(
            mode=Mode.BACK,
            seq=last.seq + 1,
            before=last.after,
            after=earlier.after,
            answer=earlier.answer,
            definition=earlier.definition,
            defined=-1 if told is None else last.seq + 1,
            parts=told,
            open_from=earlier.open_from,
            swap=Swap({table: (table, version) for table, version in kept.items()}, {}),
        )
        with suppress(ConflictError):
            return _swapped(asset, marker)
    raise _quicker(transform)


def discard(warehouse: Warehouse, transform: Definition) -> list[str]:
    """Give up what was rebuilt and not switched to, and what the last switch keeps for the way
    back; the tables that are gone."""
    gone = drop(warehouse, beside(transform))
    asset = Asset(warehouse, transform)
    if (last := asset.state.last()).switched >= 0:
        asset.state.forget(last.switched)
    return gone


def without_erased(warehouse: Warehouse, side: Definition, make: Callable[[], T]) -> T:
    """What is made of tables beside an asset's, none of which has an event that is erased.

    An erasure removes such tables once the events have left the log, and who fills them may make
    some of them again after that. So the filler looks when it is through: if no events have left
    the log since it began, an erasure of which it does not know comes later and finds all of them.
    Otherwise they go, and are made from what the log has. Those of a process that is killed in
    between say in their state from which log they were counted: nobody goes on with them.

    Raises:
        ConflictError: events were erased time and again.
    """
    for _ in range(_ANEW):
        known = erasures.gone(warehouse, side.source)
        try:
            made = make()
        except Exception:
            if erasures.gone(warehouse, side.source) == known:
                raise
        else:
            if erasures.gone(warehouse, side.source) == known:
                return made
        # Also what fails in any way, as the tables go while they are written.
        drop(warehouse, side)
    raise ConflictError(f"Events of '{side.source.name}' were erased {_ANEW} times meanwhile.")


def _made(warehouse: Warehouse, side: Definition) -> None:
    if not _stands(warehouse, side):
        # Not begun, or begun for a definition that has changed again, or before an erasure.
        drop(warehouse, side)
        runner.backfill(warehouse, side)
    runner.incremental(warehouse, side)


def _stands(warehouse: Warehouse, side: Definition) -> bool:
    """Whether what is beside can be gone on with: it is by this definition, and has no event that
    was erased since it was begun."""
    last = Asset(warehouse, side).state.last()
    known = erasures.gone(warehouse, side.source)
    return last.definition == fingerprint(side) and last.erasures == known


def _attempts() -> Iterator[None]:
    """Turns of trying what another run may be quicker with, each after a longer wait."""
    for n in range(_ATTEMPTS):
        yield
        time.sleep(random.uniform(0, min(1.0, 0.05 * 2**n)))


def _quicker(transform: Definition) -> ConflictError:
    return ConflictError(f"Other runs of '{transform.name}' were quicker {_ATTEMPTS} times.")


def _half_published(transform: Definition, last: Marker) -> DataError:
    name = transform.name
    return DataError(
        f"The newest run of '{name}', its commit {last.seq}, is not published to its end after "
        f"{_PATIENCE:.0f} seconds: it is under way still, or was killed. Nothing was switched. "
        f"Wait for it, or let its stream or `tidemark run {name}` by its own definition publish "
        f"it; `tidemark rebuild {name} --switch --no-way-back` goes on without."
    )


def _swapped(asset: Asset, marker: Marker) -> RunFacts:
    assert marker.swap is not None
    state = marker.swap.taken[asset.transform.state_table]
    return swap.finish(asset, swap.store(asset, marker, state))


def _renamed(
    found: dict[str, int], side: Definition, own: Definition
) -> dict[str, tuple[str, int]]:
    """The versions of tables beside, by the names of those whose place they take."""
    names = [own.state_table, *swap.others(own)]
    theirs = [side.state_table, *swap.others(side)]
    pairs = zip(names, theirs, strict=True)
    return {name: (other, found[other]) for name, other in pairs if other in found}


def _kept(asset: Asset, last: Marker) -> tuple[Marker, dict[str, int]]:
    """The last switch, and the versions that the tables had before."""
    name = asset.transform.name
    if last.switched < 0:
        raise DataError(f"There is no way back: no switch of '{name}' keeps what was before it.")
    switched = asset.state.at(last.switched)
    kept = dict(switched.swap.kept) if switched.swap else {}
    if asset.state.forgotten() >= last.switched or not all(
        asset.warehouse.readable(table, version) for table, version in kept.items()
    ):
        raise DataError(
            f"There is no way back: what '{name}' had before its last switch was discarded, or "
            "maintenance has removed it after its seven days."
        )
    return switched, kept


def _published(asset: Asset) -> Marker:
    """The newest commit, once it is published; or after a while, where nobody publishes it."""
    began, last = time.monotonic(), asset.state.last()
    if last.swap is not None and asset.published() < last.seq:
        swap.finish(asset, last)
    while asset.published() < last.seq and time.monotonic() - began < _PATIENCE:
        time.sleep(0.05)
        last = asset.state.last()
    return last
