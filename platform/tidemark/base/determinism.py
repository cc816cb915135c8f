"""Find calls in SQL expressions whose result does not depend on the row alone.

Rows are computed several times: in runs, backfills, rebuilds, and by `tidemark parity`. The results
can only be equal if they do not depend on the time, the place or the session of the computation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from tidemark.base.errors import DefinitionError

NONDETERMINISTIC_FUNCTIONS = frozenset(
    {
        # the time
        "curdate",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtimestamp",
        "now",
        # random numbers; `aes_encrypt` chooses a random initialization vector
        "aes_encrypt",
        "rand",
        "randn",
        "random",
        "randstr",
        "shuffle",
        "uniform",
        "uuid",
        # the division of rows into files and partitions
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "monotonically_increasing_id",
        "spark_partition_id",
        # the session
        "current_catalog",
        "current_database",
        "current_path",
        "current_schema",
        "current_timezone",
        "current_user",
        "session_user",
        # any function of Java
        "java_method",
        "reflect",
        "try_reflect",
    }
)
"""The functions of Spark whose result can differ between two computations of the same row."""

_ONLY_IN_SQL = frozenset({"identifier", "user"})
"""Further functions. In a plan, a user's Python function can have one of these names, and
`identifier`, which calls a function by a text, does not occur."""

_WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_path", "current_time", "current_timestamp", "current_user"}
    | {"session_user"}
)
"""The functions that SQL also calls without parentheses."""

_QUERIES = frozenset({"select", "table"})
_TYPES_OF_INSTANTS = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})
_MOVING_INSTANT = re.compile(r"""['"]\s*(now|today|tomorrow|yesterday)\b""", re.IGNORECASE)
"""A text that SQL reads as an instant relative to the present, as in `TIMESTAMP 'now'`."""

_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
    | [rR]'[^']*' | [rR]"[^"]*"
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*"
    | `(?:[^`]|``)*`
    | [^\W\d]\w*
    | \d[\w.]*
    | \S
    """,
    re.VERBOSE | re.DOTALL,
)


class DeterministicSql:
    """Marks a text as a SQL expression that must be deterministic."""


Sql = Annotated[str, DeterministicSql]
"""The type of a parameter that takes a SQL expression over the columns of a row.

`arguments.check_arguments` refuses an expression that is not deterministic.
"""


def check_deterministic(owner: str, sql: str) -> None:
    """Refuse a SQL expression whose result does not depend on the row alone.

    Args:
        owner: the argument that has the expression, for the message, as in `join: where`.
    """
    fault = find_nondeterminism(sql)
    if fault is not None:
        raise DefinitionError(
            f"{owner} {fault} (got {sql!r}). Rows are computed more than once, for example in a "
            "backfill, and must be equal each time: use only columns and functions of columns."
        )


def find_nondeterminism(sql: str, columns: Iterable[str] = ()) -> str | None:
    """Return why the result of a SQL expression does not depend on the row alone.

    The text continues a sentence, as in `calls rand(), which returns another value each time`.
    Return None if the result depends on the row alone.

    Args:
        columns: the names of the row's columns. A column takes precedence over a function that SQL
            calls without parentheses. By default, only a name in backticks is taken for a column.
    """
    column_names = {column.lower() for column in columns}
    tokens = ["", *_list_tokens(sql), "", ""]
    for index in range(1, len(tokens) - 2):
        previous, token, following, next_but_one = tokens[index - 1 : index + 3]
        name = token.strip("`").lower()
        if following == "(" and _is_call_nondeterministic(name, next_but_one):
            return describe_nondeterministic_call(name)
        if name in _QUERIES and previous == "(" and _begins_operand(following):
            return "contains a query, which reads a table whose version is not recorded"
        if name in _TYPES_OF_INSTANTS and _MOVING_INSTANT.match(following):
            return f"has the value {token} {following}, which is another one each time"
        if name not in _WITHOUT_PARENTHESES or name in column_names:
            continue
        is_column = token.startswith("`") or "." in (previous, following)
        if not is_column and previous.lower() != "as":
            return describe_nondeterministic_call(name)
    return None


def describe_nondeterministic_call(function: str) -> str:
    return f"calls {function}(), which returns another value each time"


def list_sql(value: object, hint: Any) -> Iterator[str]:  # noqa: ANN401 (an annotation)
    """Yield the SQL expressions in an argument.

    Args:
        hint: the annotation of the parameter, with its extras. It has `Sql` where the value has a
            SQL expression.
    """
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        if DeterministicSql in parts and isinstance(value, str):
            yield value
    elif origin in (Union, UnionType):
        for part in parts:
            yield from list_sql(value, part)
    elif isinstance(value, Mapping) and len(parts) == len(("key", "value")):
        for item in value.values():
            yield from list_sql(item, parts[1])
    elif origin in (Sequence, list, tuple) and isinstance(value, Sequence):
        for item in value if not isinstance(value, str) else ():
            yield from list_sql(item, parts[0])


def _list_tokens(sql: str) -> list[str]:
    return [token[0] for token in _TOKEN.finditer(sql) if token["comment"] is None]


def _is_call_nondeterministic(function: str, first_argument: str) -> bool:
    # Without arguments, `unix_timestamp` returns the present time.
    if function == "unix_timestamp":
        return first_argument == ")"
    return function in NONDETERMINISTIC_FUNCTIONS or function in _ONLY_IN_SQL


def _begins_operand(token: str) -> bool:
    return token == "*" or token[:1].isalnum() or token[:1] in ("_", "`", "'", '"', "(")
