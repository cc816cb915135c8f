"""Let an event log's columns follow the definition of their source.

| the definition | effect on the event log |
| --- | --- |
| gains a nullable column | one commit adds it: earlier rows are null |
| gains a NOT NULL column | the source stops with an error: earlier events have no value |
| changes the type of a column | the source stops: the earlier type decoded the existing rows |
| loses a column | the source stops: new values of the column would be lost |
| protects a column differently | the source stops: existing rows keep their protection |

The event log records its *schema version*: 1 at first, and one more each time columns are added.
Its property `tidemark.schema.<column>` is the version that added the column. A property of a column
that does not exist yet has no effect. The properties are therefore written before the columns are
added: a process that is killed in between has changed nothing.
"""

from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.types import StructType

from tidemark.base.errors import DefinitionError
from tidemark.base.failpoint import pass_fail_point
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.store.rows import arrow_schema, delta_schema, spark_schema
from tidemark.store.warehouse import Warehouse

_PROTECTED = "tidemark.mask."
_SINCE = "tidemark.schema."


def to_ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def mask_properties(source: Source) -> dict[str, str]:
    """Return how a source masks its columns (`Source.mask`), as properties of its event log."""
    properties = dict[str, str]()
    for column in sorted(source.mask):
        properties[f"{_PROTECTED}{column}"] = source.mask[column].stored_descriptor
    return properties


def schema_version(properties: Mapping[str, str], columns: list[str]) -> int:
    version = 1
    for name in columns:
        version = max(version, int(properties.get(f"{_SINCE}{name}", 1)))
    return version


def declared_schema(warehouse: Warehouse, source: Source) -> pa.Schema:
    """Return the schema of a source's event log as the definition declares it."""
    return arrow_schema(delta_schema(_declared_type(warehouse, source)))


def _declared_type(warehouse: Warehouse, source: Source) -> StructType:
    columns = {**source.columns, **ARRIVAL_COLUMNS}
    return warehouse.spark.createDataFrame([], to_ddl(columns)).schema


def follow_definition(warehouse: Warehouse, source: Source) -> int:
    """Add newly declared columns to an existing event log, and return its schema version.

    Raises:
        DefinitionError: the event log can't follow the source's definition; nothing was written.
    """
    table = source.log_table
    declared = _declared_type(warehouse, source)
    declared_columns = arrow_schema(delta_schema(declared))
    existing = warehouse.read_schema(table)
    added = [f for f in declared_columns if f.name not in existing.names]
    _check_columns(source, declared, declared_columns, existing)
    properties = warehouse.read_properties(table)
    _check_protection(source, properties, existing.names)
    version = schema_version(properties, existing.names)
    if not added:
        return version
    version += 1
    ways = mask_properties(source)
    changes = {f"{_SINCE}{f.name}": str(version) for f in added}
    for name in (f"{_PROTECTED}{f.name}" for f in added):
        if name in ways or name in properties:
            changes[name] = ways.get(name, "")
    pass_fail_point("schema")
    warehouse.set_properties(table, changes)
    pass_fail_point("columns")
    warehouse.add_columns(table, pa.schema(added))
    return version


def _check_columns(
    source: Source, declared: StructType, declared_columns: pa.Schema, existing: pa.Schema
) -> None:
    types = _type_names(declared_columns)
    before = _type_names(existing)
    for name in before:
        if name not in types:
            _refuse_definition(
                source,
                f"the column '{name}', which is no longer declared",
                "declare it again; it may be null in new events",
            )
        if types[name] != before[name]:
            _refuse_definition(
                source,
                f"the type of '{name}' ({before[name]} in the event log, {types[name]} in the "
                "definition)",
                "declare the old type and cast the column in the functions, or add a column with "
                "another name",
            )
    for name in types:
        if name not in before and not declared[name].nullable:
            _refuse_definition(
                source,
                f"the column '{name}', which is new and NOT NULL although earlier events have no "
                "value",
                "declare it without NOT NULL",
            )


def _check_protection(source: Source, properties: Mapping[str, str], existing: list[str]) -> None:
    declared = mask_properties(source)
    plain = "unprotected"
    for column in existing:
        name = f"{_PROTECTED}{column}"
        current = declared.get(name, "")
        before = properties.get(name, "")
        if current != before:
            raise DefinitionError(
                f"Source '{source.name}' differs from its event log '{source.log_table}' in the "
                f"protection of '{column}' ({current or plain} in the definition, "
                f"{before or plain} in "
                "the event log). Existing rows keep their protection: restore it in the "
                "definition, or give the changed source a new name."
            )


def _type_names(schema: pa.Schema) -> dict[str, str]:
    """Return the columns' types as a definition spells them."""
    names = dict[str, str]()
    for field in spark_schema(delta_schema(schema)):
        names[field.name] = field.dataType.simpleString().upper()
    return names


def _refuse_definition(source: Source, difference: str, way: str) -> NoReturn:
    remedy = f"{way}, or give the changed source a new name"
    if isinstance(source, DerivedSource):
        # Its columns follow from what it reads.
        command = f"tidemark rebuild {source.name}"
        remedy = (
            f"run `{command}`, which computes it with its present columns, and then `{command} "
            "--promote`"
        )
    raise DefinitionError(
        f"Source '{source.name}' differs from its event log '{source.log_table}' in {difference}. "
        f"Nothing was ingested, and nothing is lost: {remedy}."
    )
