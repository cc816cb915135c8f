"""Check that a Delta table fits its source and the options of its connector."""

from dataclasses import dataclass

from deltalake import DeltaTable

from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.column_type import simple_type
from tidemark.define.source import Source
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.rows import spark_schema
from tidemark_streaming.delta.versions import CHANGE_TYPE

CHANGE = {
    CHANGE_TYPE: "STRING",
    "_commit_version": "BIGINT",
    "_commit_timestamp": "TIMESTAMP",
}
"""Source columns for the metadata of a row in the change data feed. A source declares the ones that
it needs.

`_change_type` is `insert`, `update_preimage`, `update_postimage` or `delete`.
"""

NEW_NAME = " (a source that has arrivals also needs a new name)"
"""The end of advice to set `start`, which only the first ingest of a source uses."""

_LOCAL = "timestamp_ntz"
_FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class TableChecks:
    """The checks of a table, with the options of its connector (see `DeltaConnector`)."""

    source: Source
    path: str
    start: int
    change_feed: bool
    time_zone: str | None

    @property
    def table_name(self) -> str:
        """The table, as error messages name it."""
        return f"Delta table '{self.path}' of source '{self.source.name}'"

    def check_table(self, table: DeltaTable) -> None:
        """Raise an error if the table does not fit the source or this connector.

        Raises:
            DataError: the table has column mapping, has deletion vectors although `start` is not 0,
                or lacks the change data feed that `change_feed` requires.
            DefinitionError: a column of the source is missing or has another type, `time_zone` is
                needed but not set, or a column that partitions the table can't be read.
        """
        settings = table.metadata().configuration
        if settings.get("delta.columnMapping.mode", "none") != "none":
            raise DataError(
                f"{self.table_name} uses column mapping, which this connector does not support: "
                "its files have other column names. Read a copy without column mapping (CREATE "
                "TABLE … AS SELECT)."
            )
        if self.start and "deletionVectors" in (table.protocol().reader_features or []):
            raise DataError(
                f"{self.table_name} uses deletion vectors, so it can't be read as of version "
                f"{self.start}: set `start` to 0, or read a copy without deletion vectors "
                "(CREATE TABLE … AS SELECT)."
            )
        if self.change_feed and settings.get(_FEED) != "true":
            raise DataError(
                f"{self.table_name} has no change data feed: enable it with ALTER TABLE … SET "
                f"TBLPROPERTIES ({_FEED} = true). If the source has no arrivals yet, set `start` "
                "to the version that this creates."
            )
        self._check_partitions(table)
        types = _column_types(table)
        if self.change_feed:
            for name, kind in CHANGE.items():
                types[name] = kind.lower()
        for name, kind in self.source.record_fields.items():
            if simple_type(kind) == "timestamp" and types.get(name) == _LOCAL:
                if self.time_zone is None:
                    raise DefinitionError(
                        f"Delta table '{self.path}' has the column '{name}' of source "
                        f"'{self.source.name}' as {_LOCAL}, which has no time zone: set the "
                        "connector's time_zone to 'UTC', or to the zone of its values."
                    )
                continue
            if types.get(name) != simple_type(kind):
                columns = ", ".join(f"{column} {type_}" for column, type_ in types.items())
                difference = "has no such column"
                if name in types:
                    difference = f"has it as {types[name]}"
                raise DefinitionError(
                    f"Source '{self.source.name}' declares the column '{name}' as {kind}, but "
                    f"Delta table '{self.path}' {difference}; its columns are {columns}."
                )

    def _check_partitions(self, table: DeltaTable) -> None:
        """Raise a DefinitionError if a column that partitions the table is protected, or BINARY."""
        partition_columns = table.metadata().partition_columns
        for name in map(self.source.field_of, self.source.mask):
            if name in partition_columns:
                raise DefinitionError(
                    f"{self.table_name} is partitioned by the protected column '{name}'. The "
                    "names of its files contain that column's values, and error messages contain "
                    "these names: read a copy that is not partitioned by it."
                )
        for name, kind in self.source.record_fields.items():
            if name in partition_columns and simple_type(kind) == "binary":
                raise DefinitionError(
                    f"{self.table_name} is partitioned by the BINARY column '{name}'. Programs "
                    "differ in how they write such values to the transaction log, so they can't be "
                    "read reliably: read a copy that is not partitioned by this column."
                )

    def find_local_columns(self, table: DeltaTable) -> list[str]:
        """Return the TIMESTAMP fields of the source that the table stores as `timestamp_ntz`."""
        types = _column_types(table)
        local_columns = list[str]()
        for name, kind in self.source.record_fields.items():
            if simple_type(kind) == "timestamp" and types.get(name) == _LOCAL:
                local_columns.append(name)
        return local_columns

    def check_feed(self, version: int) -> None:
        """Raise a DataError if the change data feed was not enabled as of a version."""
        if open_delta_table(self.path, version).metadata().configuration.get(_FEED) != "true":
            raise DataError(
                f"{self.table_name} has no change data feed for version {version}, because the "
                "feed was enabled later. Set `start` to the version that enabled it, which "
                f"DESCRIBE HISTORY shows{NEW_NAME}. The ingest then reads the whole table as of "
                "that version first."
            )


def _column_types(table: DeltaTable) -> dict[str, str]:
    fields = spark_schema(table.schema()).fields
    return {field.name: field.dataType.simpleString() for field in fields}
