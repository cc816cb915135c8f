"""Bundle an asset's tables in one object: its event log, its state and its published tables."""

from copy import copy

from tidemark.base import thresholds
from tidemark.define.definition import Definition
from tidemark.define.rollup import base_transform
from tidemark.define.transform import WindowedTransform
from tidemark.store import ledger
from tidemark.store.commits import rollup_generation
from tidemark.store.event_log.arrival import NO_ARRIVALS, RecentArrivals
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse


class Asset:
    """An asset (a transform) in a warehouse.

    Args:
        recent: arrivals of its source that the caller has in memory.
    """

    def __init__(
        self, warehouse: Warehouse, transform: Definition, recent: RecentArrivals = NO_ARRIVALS
    ) -> None:
        self.warehouse = warehouse
        self.transform = transform
        self.log = Log(warehouse, transform.source, recent)
        self.state = State(warehouse, transform)
        self._table_id = self.read_table_id()

    @property
    def table_id(self) -> str | None:
        """Its identity from its first run until it is dropped; None before its first run.

        Every write that a state commit causes in other tables carries it.
        """
        if self._table_id is None:
            # Another run may have been the first one since.
            self._table_id = self.read_table_id()
        return self._table_id

    @table_id.setter
    def table_id(self, table_id: str | None) -> None:
        self._table_id = table_id

    def read_table_id(self) -> str | None:
        """Return the identity of its state; None before its first run.

        A roll-up does not have a state. Its identity changes if its base or its own table is
        recreated, or if the definition of its windows changes.
        """
        base = self.state.table_id()
        if base is None or not self.rolls_up:
            return base
        own = self.warehouse.head(self.transform.table)
        return (
            None
            if own is None
            else f"{base}+{own.table_id}{rollup_generation.identity_suffix(own.kind)}"
        )

    @property
    def counting(self) -> WindowedTransform:
        """The transform that counts the events of its windows: its own or, for a roll-up, its
        base's.
        """
        return base_transform(self.transform)

    @property
    def rolls_up(self) -> bool:
        """Whether it is a roll-up, which uses its base's state instead of its own."""
        return self.transform.follows is not None

    def published_commit_number(self) -> int:
        """Return the number of the newest commit known to be published; -1 before the first."""
        if self.table_id is None:
            return -1
        return self.warehouse.transaction(ledger.TABLE, self.app)

    def as_of_commit(self, commit_number: int) -> "Asset":
        """Return the asset with its state as of a commit."""
        found = copy(self)
        found.state = State(self.warehouse, self.transform, through=commit_number)
        return found

    def few(self) -> bool:
        """Return whether its source's events, and the rows computed from them, fit in memory.

        One event can produce many rows, so both are checked.
        """
        tables = (self.transform.table, self.state.table)
        most = [self.warehouse.at_most(t) for t in tables if self.warehouse.exists(t)]
        return self.log.few() and all(n <= thresholds.IN_MEMORY_PARTIALS for n in most)

    @property
    def app(self) -> str:
        """The application id of its commits to tables other than its state."""
        return f"{self.transform.name}/{self.table_id}"
