"""An asset's tables, as one object: its log, its state, and what runs write."""

from tidemark.define.definition import Definition
from tidemark.define.rollup import counting
from tidemark.define.transform import WindowedTransform
from tidemark.store import kinds, ledger
from tidemark.store.arrival import NOTHING, Recent
from tidemark.store.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

HELD = 50_000
"""Partials, or rows of windows, up to which the rows of their windows are held in memory."""


class Asset:
    """A transform in a warehouse.

    Args:
        life: its identity, from its first run until it is dropped, where that is known. All that a
            commit of the state causes elsewhere is written under it.
        recent: arrivals of its source that the caller has in memory.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        transform: Definition,
        life: str | None = None,
        recent: Recent = NOTHING,
    ) -> None:
        self.warehouse = warehouse
        self.transform = transform
        self.log = Log(warehouse, transform.source, recent)
        self.state = State(warehouse, transform)
        self.life = life or self.lifetime()

    def lifetime(self) -> str | None:
        """The identity of its state; a roll-up, which has none, begins anew with its base as well
        as with its own table, and where that has windows of another kind. None where it is yet to
        begin."""
        base = self.state.life()
        if base is None or not self.rolls_up:
            return base
        own = self.warehouse.head(self.transform.table)
        return None if own is None else f"{base}+{own.life}{kinds.suffix(own.kind)}"

    @property
    def counting(self) -> WindowedTransform:
        """The transform that counts the events of its windows: itself, or the base it follows."""
        return counting(self.transform)

    @property
    def rolls_up(self) -> bool:
        """Whether it has no state of its own, but follows its base's."""
        return self.transform.follows is not None

    def published(self) -> int:
        """The number of the newest commit that is known to be published; -1 before the first."""
        if self.life is None:
            return -1
        return ledger.published(self.warehouse, self.transform.name, self.life)

    def few(self) -> bool:
        """Whether its source's events are few, and so are the rows that they came to, which may be
        many for each: few enough for memory. Not where that is not told without asking."""
        tables = (self.transform.table, self.state.table)
        most = [self.warehouse.at_most(t) for t in tables if self.warehouse.exists(t)]
        return self.log.few() and all(n is not None and n <= HELD for n in most)

    @property
    def app(self) -> str:
        """The application in whose name its commits are written to other tables than its state."""
        return f"{self.transform.name}/{self.life}"
