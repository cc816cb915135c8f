"""Internal column names of Tidemark, found in its source; a user's column may have any of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tidemark
import tidemark_streaming
from tidemark.define.helper_columns import is_helper

_NAME = re.compile(r"_?[a-z][a-z0-9_]{0,30}")
_TAKING = {
    *("alias", "withColumn", "withColumns", "col", "append_column", "set_column", "select"),
    *("groupBy", "agg", "drop", "partitionBy", "orderBy", "sum", "max", "min", "coalesce"),
    *("struct", "isnull", "isnotnull", "explode", "unix_micros", "timestamp_micros", "join"),
    *("concat_ws", "drop_columns", "sort_by", "field", "helper", "sortWithinPartitions", "table"),
}
"""Functions and methods that take column names."""


def internal_names() -> list[str]:
    """Return every string in the code that may be a column name."""
    found = set[str]()
    for package in (tidemark, tidemark_streaming):
        for file in Path(package.__path__[0]).rglob("*.py"):
            found |= set(_names(ast.parse(file.read_text())))
    return sorted(name for name in found if _NAME.fullmatch(name) and not is_helper(name))


def _names(module: ast.Module) -> Iterator[str]:
    constants = [node.value for node in module.body if isinstance(node, ast.Assign) and node.value]
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    taking = [call for call in calls if _called(call) in _TAKING]
    for tree in (*constants, *(part for call in taking for part in call.args)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _called(call: ast.Call) -> str | None:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return None
