"""Create tables, and change their columns and properties."""

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql.types import StructType

from tidemark.base.errors import ConflictError
from tidemark.store.committers import conditional
from tidemark.store.committers.table_access import TableAccess
from tidemark.store.refusals import translate_refusals
from tidemark.store.rows import delta_schema

_PROPERTIES = {
    # Opening a table reads the commits since the last checkpoint.
    "delta.checkpointInterval": "25",
    # Only maintenance knows which commits readers still need.
    "delta.enableExpiredLogCleanup": "false",
    # Opening a table lists its transaction log.
    "delta.logRetentionDuration": "interval 7 days",
}
_PROPERTIES_IN_OBJECT_STORES = {
    # Each commit after the checkpoint is a request of its own.
    "delta.checkpointInterval": "10",
}

_tested_databases = set[str]()
"""The addresses of the databases whose object store has conditional writes."""


class TableDefinitions(TableAccess):
    """Creates and alters the tables below a folder."""

    def create_table(
        self, table: str, schema: StructType | pa.Schema, comment: str, properties: dict[str, str]
    ) -> bool:
        """Create a table. Return False if it exists already."""
        with translate_refusals(f"create table '{table}' in '{self._root}'"):
            if not self._is_local:
                self._demand_conditional_writes()
            try:
                with self._tables.create_table(table) as path:
                    DeltaTable.create(
                        path,
                        delta_schema(schema),
                        mode="error",
                        description=comment or None,
                        configuration=self._default_properties() | properties,
                        raise_if_key_not_exists=False,
                        commit_properties=conditional.FIRST_COMMIT,
                    )
            except (DeltaError, CommitFailedError, ConflictError):
                # Another process may have created the table at the same time.
                if self.find_head(table) is None:
                    raise
                return False
        return True

    def _demand_conditional_writes(self) -> None:
        """Refuse a store without conditional writes, before the first table of a database is made.

        If the database has a table, its store was tested before.
        """
        if self._root in _tested_databases:
            return
        if not self.has_any_table():
            conditional.prove_conditional_writes(self._root)
        _tested_databases.add(self._root)

    def add_columns(self, table: str, schema: pa.Schema) -> None:
        """Add the columns of `schema` that a table lacks; they are null in its existing rows."""
        existing = set(self.read_schema(table).names)
        columns = pa.schema([field for field in schema if field.name not in existing])
        if not columns:
            return
        with self._open_for_commit(table) as opened:
            opened.alter.add_columns(delta_schema(columns).fields)

    def set_properties(self, table: str, properties: dict[str, str]) -> None:
        with self._open_for_commit(table) as opened:
            opened.alter.set_table_properties(properties, raise_if_not_exists=False)

    def _default_properties(self) -> dict[str, str]:
        if self._is_local:
            return _PROPERTIES
        return _PROPERTIES | _PROPERTIES_IN_OBJECT_STORES
