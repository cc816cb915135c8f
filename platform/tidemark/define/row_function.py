"""Functions that prepare rows, for definitions in YAML and SQL, which have no function of the user.

A fingerprint describes a function by its source. The source of these functions is therefore the one
that a user writes in Python for the same rows:

    def keep_rows(rows):
        return rows.where("amount > 0")
"""

import linecache
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame

from tidemark.define.identity.function_source import describe_source

RowFunction = Callable[[DataFrame], DataFrame]

_FILE_PREFIX = "<tidemark rows "


@lru_cache
def make_row_function(condition: str | None = None) -> RowFunction:
    """Return a function that keeps all rows, or those for which a SQL condition is true."""
    result = "rows" if condition is None else f"rows.where({condition!r})"
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
