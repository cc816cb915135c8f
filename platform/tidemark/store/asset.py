"""Bundle an asset's tables in one object: its source's event log, its state, its other tables."""

from copy import copy

from tidemark.base import thresholds
from tidemark.define.definition import Definition
from tidemark.define.rollup import base_transform
from tidemark.define.transform import WindowedTransform
from tidemark.store import ledger
from tidemark.store.commits import rollup_generation
from tidemark.store.epoch import Epoch
from tidemark.store.event_log.arrival import NO_ARRIVALS, RecentArrivals
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse


class Asset:
    """An asset's definition, with its state and the event log of its source in a warehouse.

    Args:
        recent: arrivals of the asset's source that the caller has in memory. A first run reads its
            events from the log, because those in memory may have been erased since.
    """

    def __init__(
        self, warehouse: Warehouse, transform: Definition, recent: RecentArrivals = NO_ARRIVALS
    ) -> None:
        self.warehouse = warehouse
        self.transform = transform
        self.state = State(warehouse, transform)
        with warehouse.pin_version(self.state.table):
            self._table_id = self.read_table_id()
            self._erasures_of_state = self.state.count_erasures()
        is_first_run = self._table_id is None
        self.log = Log(warehouse, transform.source, NO_ARRIVALS if is_first_run else recent)
        # A state that does not exist yet can't be fenced.
        self._erasures_of_log = self.log.read_epoch() if is_first_run else None

    @property
    def table_id(self) -> str | None:
        """The asset's identity, from its first run until it is dropped; None before the first run.

        After a commit to the asset's state, a run commits to other tables. The application id
        (`commit_app`) of these commits contains this identity.
        """
        if self._table_id is None:
            # Another process may have finished the first run in the meantime.
            self._table_id = self.read_table_id()
        return self._table_id

    @table_id.setter
    def table_id(self, table_id: str | None) -> None:
        self._table_id = table_id

    def read_table_id(self) -> str | None:
        """Return the identity of the asset's state; None before the asset's first run.

        A roll-up does not have a state. The identity of a roll-up changes if its base or its own
        table is recreated, or if the definition of its windows changes.
        """
        state_id = self.state.table_id()
        if state_id is None or not self.rolls_up:
            return state_id
        head = self.warehouse.find_head(self.transform.published_table)
        if head is None:
            return None
        return f"{state_id}+{head.table_id}{rollup_generation.identity_suffix(head.kind)}"

    @property
    def start_epoch(self) -> Epoch:
        """The epoch in which this object was created, before it has read any event.

        The asset must have a state.
        """
        return Epoch(self._state_id, self._erasures_of_state, self.is_current)

    @property
    def _state_id(self) -> str:
        assert self.table_id is not None
        state_id, _, _ = self.table_id.partition("+")
        return state_id

    def is_current(self) -> bool:
        """Return whether the asset is still in the epoch in which this object was created.

        Otherwise events of its source were erased since, or its tables were dropped.
        """
        if self._table_id is not None:
            with self.warehouse.pin_version(self.state.table):
                current = self.state.table_id(), self.state.count_erasures()
            if current != (self._state_id, self._erasures_of_state):
                return False
        return self._erasures_of_log is None or self._erasures_of_log == self.log.read_epoch()

    @property
    def counting_transform(self) -> WindowedTransform:
        """The transform that counts the events: the asset itself or, for a roll-up, its base."""
        return base_transform(self.transform)

    @property
    def rolls_up(self) -> bool:
        """True if the asset is a roll-up, which has no state and uses that of its base."""
        return self.transform.rolled_up_name is not None

    def published_commit_number(self) -> int:
        """Return the number of the asset's newest commit in the ledger; -1 before the first."""
        if self.table_id is None:
            return -1
        return self.warehouse.transaction_version(ledger.TABLE, self.commit_app)

    def as_of_commit(self, commit_number: int) -> "Asset":
        """Return the asset with its state as of a commit."""
        asset = copy(self)
        asset.state = State(self.warehouse, self.transform, last_commit_number=commit_number)
        return asset

    def has_few_rows(self) -> bool:
        """Return whether the source's events, and the rows computed from them, fit in memory.

        One event can produce many rows, so both numbers are checked.
        """
        for table in (self.transform.published_table, self.state.table):
            if not self.warehouse.has_table(table):
                continue
            if self.warehouse.max_row_count(table) > thresholds.IN_MEMORY_PARTIALS:
                return False
        return self.log.has_few_events()

    @property
    def commit_app(self) -> str:
        """The application id of the asset's commits to tables other than its state."""
        return f"{self.transform.name}/{self.table_id}"
