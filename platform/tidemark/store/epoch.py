"""Let the commits of a run vouch that no erasure has changed the asset's tables since it began.

An erasure deletes events from an event log, and then *fences* the tables that were computed from
the log (`store.upkeep.erasures`). A run may have read the events before, on any machine. Its later
commits are refused, so it starts again, without the events. Its earlier commits are in the tables,
where the erasure finds them.

The *epoch* of an asset is the number of fences of its state. Each commit to a table of the asset
records, as a Delta transaction, the epoch in which its run began. A fence is a commit that
increases this number in each table, so that a commit at the same time is a conflict. The number
belongs to the identity of the state: a state that was dropped and created again begins at zero.

A table that does not exist yet can't be fenced. So the first commit to a table, which comes after
its creation, checks first that the epoch is still current. The erasure lists the tables after its
deletion and after the fences of the states. It therefore either finds the table, or the check finds
the erasure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from tidemark.base.errors import ConflictError


class ErasedMeanwhileError(ConflictError):
    """A commit of work that may have read erased events; nothing was written."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"Nothing was written to '{table}': events of its source were erased, or the table was "
            "dropped, at the same time. Run the command again."
        )


def epoch_app(state_id: str) -> str:
    """Return the application id of the transactions that record the epoch of a state."""
    return f"erasures/{state_id}"


@dataclass(frozen=True)
class Epoch:
    """Detects, at each commit of a run, an erasure that fenced the tables since the run began.

    Args:
        state_id: the identity of the asset's state.
        number: the number of fences of that state.
        is_current: returns whether the state is still in this epoch.
    """

    state_id: str
    number: int
    is_current: Callable[[], bool]

    def demand_current(self, table: str, opened: DeltaTable) -> Mapping[str, int]:
        """Return the transaction that a commit on top of a version of a table records.

        Args:
            opened: the version of the table.

        Raises:
            ErasedMeanwhileError: an erasure has fenced the table since the run began.
        """
        app = epoch_app(self.state_id)
        recorded = opened.transaction_version(app)
        passed = not self.is_current() if recorded is None else recorded > self.number
        if passed:
            raise ErasedMeanwhileError(table)
        return {app: self.number}
