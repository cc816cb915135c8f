"""Check that an asset's function works row by row.

A run sees a range of arrivals. If a result, such as a count or a rank, depends on other rows in
that range, it changes with the division of arrivals into runs. A nondeterministic result changes,
too. The engine's plan of the function shows both faults before the first run. Between the stream
and the function's result, the plan may contain only operators that process one row at a time.
"""

import re
from dataclasses import dataclass, field
from threading import Lock
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.determinism import (
    NONDETERMINISTIC_FUNCTIONS,
    describe_nondeterministic_call,
)
from tidemark.base.errors import DefinitionError
from tidemark.define import uniqueness
from tidemark.define.preparation import Preparation
from tidemark.store.event_log import lookup_tables
from tidemark.store.event_log.log import Log

STREAM = "tidemark_stream"
LOOKUP = "tidemark_lookup"

_ALLOWED = (
    "Project",
    "Filter",
    "Generate",
    "Expand",
    "SubqueryAlias",
    "View",
    "ResolvedHint",
    "MapInPandas",
    "MapInArrow",
    "Union",
    "Join",
)
_STREAM_SIDES = {
    "Inner": (0, 1),
    "Cross": (0, 1),
    "LeftOuter": (0,),
    "LeftSemi": (0,),
    "LeftAnti": (0,),
    "RightOuter": (1,),
}
"""By kind of join, the sides (0 left, 1 right) on which the stream may be.

On these sides, each row of the stream is joined independently of the others.
"""
_FAULTS = {
    "Aggregate": "aggregates the stream (declare `aggregates` for this)",
    "Deduplicate": "removes duplicates within a range of arrivals (declare `deduplicate` for this)",
    "Window": "uses a window function over the stream",
    "Sort": "sorts the stream",
    **dict.fromkeys(("GlobalLimit", "LocalLimit", "Tail", "Offset"), "limits the number of rows"),
    "Sample": "samples rows at random",
    **dict.fromkeys(("Repartition", "RepartitionByExpression"), "repartitions the stream"),
}
_NONDETERMINISTIC = re.compile(rf"\b({'|'.join(sorted(NONDETERMINISTIC_FUNCTIONS))})\(")
_EXPLAIN_LOCK = Lock()


@dataclass
class _Node:
    """An operator of a plan, and its inputs."""

    text: str
    depth: int
    children: list["_Node"] = field(default_factory=list["_Node"])

    @property
    def operator(self) -> str:
        return self.text.split(" ", 1)[0]

    @property
    def reads_stream(self) -> bool:
        """True if the operator is the stream, or reads the stream directly or indirectly."""
        return self.text == f"SubqueryAlias {STREAM}" or any(c.reads_stream for c in self.children)


def check_function(log: Log, preparation: Preparation) -> None:
    """Raise an error if the function does not work row by row."""
    rows = log.read_events(0, 0)
    if preparation.marked:
        rows = rows.withColumn(uniqueness.MARK, F.lit(False))
    rows = rows.alias(STREAM)
    fault = find_misuse(rows, preparation.prepare_rows(rows, _read_lookups(log, preparation)))
    if fault is not None:
        raise DefinitionError(
            f"Asset '{preparation.asset}': its function {fault}. A run calls the function with one "
            "range of arrivals, so it must work row by row: add, cast, filter, explode, or join "
            "with a lookup table."
        )


def _read_lookups(log: Log, preparation: Preparation) -> dict[str, DataFrame]:
    """Return the current versions of a function's lookup tables, with the alias `LOOKUP`."""
    tables: dict[str, DataFrame] = {}
    if not preparation.lookup_names:
        return tables
    versions = lookup_tables.current_versions(log.warehouse, log.source)
    for name in preparation.lookup_names:
        table = lookup_tables.read_lookup_table(log.warehouse, log.source, name, versions[name])
        tables[name] = table.alias(LOOKUP)
    return tables


def find_misuse(rows: DataFrame, prepared: DataFrame) -> str | None:
    """Return a description of an operation of the function that does not work row by row.

    An example is `aggregates the stream`. Return None without such an operation.

    Args:
        rows: the function's input, with the alias `STREAM`; its lookup tables have the alias
            `LOOKUP`.
        prepared: the function's result.
    """
    if prepared is rows:
        return None
    return _find_fault(_parse_plan(prepared))


def _parse_plan(rows: DataFrame) -> _Node:
    spark = rows.sparkSession
    fields = "spark.sql.debug.maxToStringFields"
    view = f"tidemark_prepared_{uuid4().hex}"
    # The setting belongs to the session, in which other threads of this process may also run a
    # check.
    with _EXPLAIN_LOCK:
        max_fields = str(spark.conf.get(fields))
        rows.createOrReplaceTempView(view)
        spark.conf.set(fields, "100000")
        try:
            plans = spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {view}").collect()[0][0]
        finally:
            spark.conf.set(fields, max_fields)
            spark.catalog.dropTempView(view)
    analyzed = plans.split("== Analyzed Logical Plan ==\n")[1].split("\n== Optimized")[0]
    # The first line lists the columns. After it, each level of operators is indented by three
    # characters.
    _, root, *lines = analyzed.splitlines()
    path = [_Node(root, 0)]
    for line in lines:
        match = re.fullmatch(r"([ :]*)[+:]- (.*)", line)
        if match is None:
            continue
        node = _Node(match[2], len(match[1]) // 3 + 1)
        while path[-1].depth >= node.depth:
            path.pop()
        path[-1].children.append(node)
        path.append(node)
    return path[0]


def _find_fault(node: _Node) -> str | None:
    """Return a description of an operation in a plan that does not work row by row, or None."""
    if node.text in (f"SubqueryAlias {STREAM}", f"SubqueryAlias {LOOKUP}"):
        return None
    if changing := _NONDETERMINISTIC.search(node.text):
        return describe_nondeterministic_call(changing[1])
    if node.operator.startswith("Relation"):
        return "reads a table whose version is not recorded (declare it in the source's lookups)"
    if node.reads_stream and (fault := _find_operator_fault(node)):
        return fault
    for child in node.children:
        fault = _find_fault(child)
        if fault is not None:
            return fault
    return None


def _find_operator_fault(node: _Node) -> str | None:
    operator = node.operator
    sides = [c.reads_stream for c in node.children]
    if operator not in _ALLOWED:
        return _FAULTS.get(operator, f"uses {operator} on the stream")
    if operator == "Union" and not all(sides):
        return "adds rows that are not from the stream"
    if operator == "Join":
        kind = node.text.split()[1].rstrip(",")
        if sides.count(True) > 1:
            return "joins the stream with itself"
        if sides.index(True) not in _STREAM_SIDES.get(kind, ()):
            return f"joins ({kind}) in a way that adds rows that are not from the stream"
    return None
