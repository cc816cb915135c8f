"""Functions that prepare rows, for definitions in YAML and SQL, which have no function of the user.

A fingerprint describes a function by its source. The source of these functions is therefore the one
that a user writes in Python for the same rows:

    def keep_rows(rows):
        return rows.where("amount > 0").selectExpr("*", "upper(city) AS region")
"""

import linecache
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame

from tidemark.define.column_spelling import write_column
from tidemark.define.identity.function_source import describe_source

RowFunction = Callable[[DataFrame], DataFrame]

_FILE_PREFIX = "<tidemark rows "


def make_row_function(
    condition: str | None = None, computed: Mapping[str, str] | None = None
) -> RowFunction:
    """Return a function that keeps all rows, or those for which a SQL condition is true.

    Args:
        computed: SQL expressions by the names of columns that the function adds. Condition and
            expressions use the columns of the source.
    """
    expressions = list[str]()
    for column, expression in (computed or {}).items():
        expressions.append(f"{expression} AS {write_column(column)}")
    return _make_function(condition, tuple(expressions))


@lru_cache
def _make_function(condition: str | None, expressions: tuple[str, ...]) -> RowFunction:
    result = "rows"
    if condition is not None:
        result += f".where({condition!r})"
    if expressions:
        arguments = ", ".join(map(repr, expressions))
        result += f".selectExpr('*', {arguments})"
    text = f"def keep_rows(rows):\n    return {result}\n"
    file = f"{_FILE_PREFIX}{sha256(text.encode()).hexdigest()[:12]}>"
    # Without a modification time, Python takes the lines as they are and looks for no file.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    # The function's module can't be imported, so that its code is sent to other processes.
    module: dict[str, Any] = {"__name__": "tidemark_rows"}
    exec(compile(text, file, "exec"), module)
    function = module["keep_rows"]
    # The function keeps the description of its source when it is sent.
    describe_source(function)
    return function


def is_generated(function: Callable[..., object]) -> bool:
    """Return whether a function is one of `make_row_function`, and not a user's."""
    return function.__code__.co_filename.startswith(_FILE_PREFIX)
