"""Fence a table, so that only the newest of several writers of an application can commit.

Each commit of a fenced writer has the next number of its application. The warehouse skips a commit
whose number is not higher than the last one. Taking the fence is itself a commit with the next
number, so pending and later commits of an earlier writer have no effect.
"""

from tidemark.base.errors import ConflictError
from tidemark.store.committers.values import Vouches
from tidemark.store.refusals import busy_error
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse

_ATTEMPTS = 5


class Fence:
    """Lets only one writer of an application commit to a table.

    `fence_off` takes the right to write, and the writer keeps it until another writer calls
    `fence_off`. Creating the object does not take the right.

    Args:
        table: an existing table of the warehouse.
        app: the name of the application; its writers exclude each other.
    """

    def __init__(self, warehouse: Warehouse, table: str, app: str) -> None:
        self.warehouse = warehouse
        self.table = table
        self.app = app
        self._number = -1

    def fence_off(self, removing: str | None = None, vouches: Vouches | None = None) -> None:
        """Fence off earlier writers, and delete the rows for which `removing` (SQL) is true.

        Args:
            vouches: what the commit records (`store.integrity`).
        """
        for _ in range(_ATTEMPTS):
            # Another writer may take the fence between the question and the commit.
            with self.warehouse.pin_version(self.table):
                nothing = self.warehouse.read_schema(self.table).empty_table()
                self._number = self.warehouse.transaction_version(self.table, self.app)
                try:
                    self._commit_rows(nothing, removing, vouches)
                except ConflictError:
                    continue
                return
        raise busy_error(self.table)

    def append_rows(self, rows: Rows, vouches: Vouches | None = None) -> None:
        """Commit `rows`.

        Args:
            vouches: the versions of other tables that the commit vouches for (`store.integrity`).

        Raises:
            ConflictError: another writer took the fence; nothing was written.
        """
        self._commit_rows(rows, None, vouches)

    def take_number(self) -> int:
        """Return the number of this writer's next commit.

        The commit has no effect if another writer has taken the fence.
        """
        self._number += 1
        return self._number

    def _commit_rows(
        self, rows: Rows, replacing: str | None, vouches: Vouches | None = None
    ) -> None:
        commit_id = (self.table, self.app, self.take_number())
        if replacing is None:
            committed = self.warehouse.append_rows(rows, *commit_id, vouches=vouches)
        else:
            table, app, number = commit_id
            committed = self.warehouse.replace_rows(
                rows, table, replacing, app, number, vouches=vouches
            )
        if committed is None:
            raise ConflictError(
                f"Another writer of '{self.table}' has taken over, so this one stops. No event is "
                "lost or counted twice."
            )
