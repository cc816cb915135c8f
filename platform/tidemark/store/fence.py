"""A fence around a table: of several writers of one application, only the newest gets through.

A process that is killed leaves its last write running in the engine, where it may commit long
after another process took over. Each commit of a fenced writer therefore carries the next number
of its application, and Delta refuses or skips a number that is not higher than the last. Taking
the fence is itself such a commit: whatever an earlier writer still has under way is void from
then on. The numbers come from the table's version, so they rise whoever writes.
"""

from uuid import uuid4

from pyspark.sql import DataFrame, Row

from tidemark.base.errors import ConflictError
from tidemark.store.warehouse import Warehouse, newest, translated

_ATTEMPTS = 5


class Fence:
    """The right to write one table, held until another writer takes it.

    Args:
        table: an existing table of the warehouse.
        app: name of the application; its writers exclude each other.
    """

    def __init__(self, warehouse: Warehouse, table: str, app: str) -> None:
        self.warehouse = warehouse
        self.table = table
        self.app = app
        self._number = -1
        self._token = ""

    def take(self, removing: str | None = None) -> None:
        """Void what earlier writers have under way, and delete rows of which `removing` is true.

        Raises:
            ConflictError: other writers took it each time.
        """
        nothing = self.warehouse.read(self.table).limit(0)
        for _ in range(_ATTEMPTS):
            self._number = self._head().version
            try:
                self.append(nothing, removing)
            except ConflictError:
                continue
            if self.held():
                return
        raise ConflictError(f"Can't write table '{self.table}': other writers keep changing it.")

    def append(self, rows: DataFrame, replacing: str | None = None) -> None:
        """Commit `rows`, in place of those of which `replacing` is true.

        It has no effect when another writer took the fence: ask `held`.
        """
        self._number += 1
        self._token = uuid4().hex
        options = {
            "txnAppId": self.app,
            "txnVersion": str(self._number),
            "userMetadata": self._token,
        }
        mode = "append"
        if replacing is not None:
            mode, options["replaceWhere"] = "overwrite", replacing
        with translated(f"write table '{self.table}'"):
            path = self.warehouse.path(self.table)
            rows.write.format("delta").mode(mode).options(**options).save(path)

    def held(self) -> bool:
        """Whether the last `append` took effect."""
        return self._head().userMetadata == self._token

    def _head(self) -> Row:
        return newest(self.warehouse.spark, self.warehouse.path(self.table))
