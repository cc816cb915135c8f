"""Read the windows, keys, aggregates and filter of a definition in SQL."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sqlglot import TokenType

from tidemark.define.aggregates import Aggregate
from tidemark.define.row_function import RowFunction, make_row_function
from tidemark.define.source import NAME, Source
from tidemark.define.sql.aggregate_call import AGGREGATES, read_aggregate
from tidemark.define.sql.expression import (
    find_column,
    is_number,
    read_expression,
    refuse_unknown_column,
)
from tidemark.define.sql.sql_text import Cursor, Phrase, SqlError, SqlText
from tidemark.define.sql.statement import Statement, read_statement
from tidemark.define.sql.table_function import (
    SqlWindow,
    read_group_function,
    read_table_function,
)
from tidemark.define.tidemark_columns import EVENT_TABLES, WINDOW_TABLES, find_table
from tidemark.define.windows import Session, Window

_BOUNDS = ("window_start", "window_end")
_OTHER_BOUNDS = ("window", "session_window", "window_time", *_BOUNDS)
"""Names that mean the window or its bounds, each in one of the spellings."""

_COMPUTED = " To group by an expression, give it a name in SELECT: upper(city) AS region."


@dataclass(frozen=True)
class SqlQuery:
    """The parts of a windowed asset that SQL describes.

    Args:
        function: the preparation of rows, which keeps those for which `WHERE` is true, and adds the
            keys that are expressions.
    """

    window: Window
    keys: Sequence[str]
    aggregates: Mapping[str, Aggregate]
    function: RowFunction


def read_query(sql: SqlText, source: Source) -> SqlQuery:
    """Return the parts of a windowed asset over a source that a text describes."""
    statement = read_statement(sql)
    qualifier = _find_qualifier(statement, source)
    if qualifier is not None:
        statement = read_statement(replace(sql, qualifier=qualifier))
    windows, groups = _read_windows(statement, source)
    condition = None
    if statement.condition is not None:
        condition = read_expression(statement.condition, source, AGGREGATES)
    keys = _read_keys(groups, statement, source)
    _check_session_keys(windows, keys)
    selection = _Selection(windows, keys, source)
    for column in statement.columns:
        selection.add(column)
    selection.check(statement)
    function = make_row_function(condition, keys.expressions)
    return SqlQuery(windows.window, tuple(keys.places), selection.aggregates, function)


def _find_qualifier(statement: Statement, source: Source) -> str | None:
    """Return the name that columns may have in front: the table's alias, or the source's name."""
    column_names = [column.lower() for column in source.columns]
    if statement.alias is None:
        # A struct column of that name has fields with the same spelling.
        return None if source.name in column_names else source.name
    alias = str(statement.alias.name).lower()
    if alias in (*column_names, *_OTHER_BOUNDS):
        raise statement.alias.error(
            f"the table can't be named {alias}, which is also the name of a column: choose another "
            "name."
        )
    return alias


def _read_windows(statement: Statement, source: Source) -> tuple[SqlWindow, list[Phrase]]:
    """Return the windows, and the parts of `GROUP BY` that are keys."""
    in_table = read_table_function(statement.table, source)
    in_groups = list[SqlWindow]()
    groups = list[Phrase]()
    for group in statement.groups:
        window = read_group_function(group, source)
        if window is None:
            groups.append(group)
        else:
            in_groups.append(window)
    several = in_groups[1:] if in_table is None else in_groups
    if several:
        raise several[0].place.error("an asset has one kind of windows: remove this one.")
    if in_table is not None:
        return in_table, _without_bounds(groups)
    if in_groups:
        return in_groups[0], groups
    raise statement.table.error(
        "the windows are missing: write FROM TUMBLE(TABLE "
        f"{source.name}, DESCRIPTOR({source.event_time}), INTERVAL '1' HOUR), or GROUP BY "
        f"window({source.event_time}, '1 hour')."
    )


def _without_bounds(groups: Sequence[Phrase]) -> list[Phrase]:
    """Return the parts of `GROUP BY` behind both bounds of the window, which it must have."""
    names = [group.name for group in groups]
    for bound in _BOUNDS:
        if bound not in names:
            raise groups[0].error(
                f"GROUP BY needs {bound}: write GROUP BY window_start, window_end, and the keys."
            )
    return [group for group in groups if group.name not in _BOUNDS]


@dataclass(frozen=True)
class _Keys:
    """The keys of `GROUP BY`.

    Args:
        places: the parts of `GROUP BY`, by the names of the keys.
        expressions: the expressions of the keys that are not columns of the source.
    """

    places: dict[str, Phrase] = field(default_factory=dict[str, Phrase])
    expressions: dict[str, str] = field(default_factory=dict[str, str])


def _read_keys(groups: Iterable[Phrase], statement: Statement, source: Source) -> _Keys:
    """Return the keys: columns of the source, or expressions with a name in `SELECT`."""
    keys = _Keys()
    named = _read_named_expressions(statement.columns, source)
    for group in groups:
        key = find_column(group, source)
        if key is None:
            key = _match_expression(group, named, source)
            _check_computed_name(key, group, source)
            keys.expressions[key] = named[key]
        if key in keys.places:
            raise group.error(f"the key '{key}' is given twice: remove one.")
        _check_name(key, group, EVENT_TABLES)
        keys.places[key] = group
    return keys


def _read_named_expressions(columns: Iterable[Phrase], source: Source) -> dict[str, str]:
    """Return the expressions in `SELECT` that have a name and are not aggregates."""
    named = dict[str, str]()
    for column in columns:
        value, alias = _split_alias(column)
        if alias is None or alias.name is None:
            continue
        # Other columns, such as aggregates, are read with their own errors.
        with suppress(SqlError):
            named[alias.name] = read_expression(value, source, AGGREGATES)
    return named


def _match_expression(group: Phrase, named: Mapping[str, str], source: Source) -> str:
    """Return the name in `SELECT` of a part of `GROUP BY`, which may be the name itself."""
    if group.name is not None:
        if group.name in named:
            return group.name
        raise refuse_unknown_column(group, source, _COMPUTED)
    if is_number(group):
        raise refuse_unknown_column(group, source, _COMPUTED)
    expression = read_expression(group, source, AGGREGATES)
    for name, named_expression in named.items():
        if named_expression == expression:
            return name
    raise group.error(f"{group} needs a name in SELECT: write {expression} AS name.")


def _check_computed_name(name: str, place: Phrase, source: Source) -> None:
    """Refuse a name of an expression that a column of the source has, too."""
    if name.lower() in (column.lower() for column in source.columns):
        raise place.error(
            f"the expression is named {name}, which is a column of source '{source.name}': give it "
            "another name in SELECT."
        )


def _check_session_keys(windows: SqlWindow, keys: _Keys) -> None:
    """Refuse a `SESSION` that is not by key: Tidemark's sessions are."""
    is_table_function = not windows.place.write().lower().startswith("session_window")
    if not isinstance(windows.window, Session) or not is_table_function:
        return
    if keys.expressions:
        raise windows.place.error(
            "PARTITION BY of SESSION can't name an expression: write FROM with the source alone, "
            "and GROUP BY session_window(…) and the keys."
        )
    if set(windows.partition_keys) != set(keys.places):
        needed = f"PARTITION BY {', '.join(keys.places)}" if keys.places else "no PARTITION BY"
        raise windows.place.error(
            f"sessions are by key, so the SESSION needs {needed} behind its table, and GROUP BY "
            "the same keys."
        )


class _Selection:
    """The result columns that are read so far.

    Args:
        keys: the keys of `GROUP BY`.
    """

    def __init__(self, windows: SqlWindow, keys: _Keys, source: Source) -> None:
        self.aggregates = dict[str, Aggregate]()
        self._windows = windows
        self._keys = keys
        self._source = source
        self._names = set[str]()

    def add(self, column: Phrase) -> None:
        """Read a result column: a bound of the window, a key, or an aggregate."""
        if not column.tokens:
            raise column.error("a column is missing: remove the comma, or write a column.")
        value, alias = _split_alias(column)
        if value.write() == "*":
            raise value.error("* can't be used: name the window's bounds, keys and aggregates.")
        bound = self._windows.bounds.get(_spell_bound(value))
        name = bound or find_column(value, self._source)
        if name is not None:
            self._add_unchanged(value, name, alias)
        elif alias is not None and self._is_computed_key(value, str(alias.name)):
            self._add_name(str(alias.name), alias)
        else:
            self._add_aggregate(value, alias)

    def _is_computed_key(self, value: Phrase, name: str) -> bool:
        """Return whether a column is a key that is an expression."""
        if name not in self._keys.expressions:
            return False
        return read_expression(value, self._source, AGGREGATES) == self._keys.expressions[name]

    def _add_unchanged(self, value: Phrase, name: str, alias: Phrase | None) -> None:
        """Add a bound or a key, which keeps its name."""
        if name not in self._keys.places and name not in _BOUNDS:
            raise value.error(
                f"'{name}' is neither a key nor aggregated: add it to GROUP BY, or aggregate it, "
                f"as in LAST({name})."
            )
        if alias is not None and alias.name != name:
            raise alias.error(
                f"the column is named {name} in the table: remove {alias}, or rename it where you "
                "read the table."
            )
        self._add_name(name, value)

    def _add_aggregate(self, value: Phrase, alias: Phrase | None) -> None:
        if _spell_bound(value).partition(".")[0] in _OTHER_BOUNDS:
            raise value.error(
                f"{value} can't be used: the bounds of a window are "
                f"{' and '.join(self._windows.bounds)} here."
            )
        aggregate = read_aggregate(value, self._source)
        if alias is None:
            raise value.error(f"{value} needs a name: write {value.write()} AS name.")
        name = alias.name
        assert name is not None
        _check_name(name, alias, {})
        self._add_name(name, alias)
        self.aggregates[name] = aggregate

    def _add_name(self, name: str, place: Phrase) -> None:
        if name in self._names:
            raise place.error(f"the column {name} is given twice: remove one, or rename it.")
        self._names.add(name)

    def check(self, statement: Statement) -> None:
        """Refuse a `SELECT` without a key, or without an aggregate."""
        for key, place in self._keys.places.items():
            if key in self.aggregates or key not in self._names:
                raise place.error(f"the key {key} is not in SELECT: add it, or don't group by it.")
        if not self.aggregates:
            raise statement.columns[-1].error(
                "an asset needs at least one aggregate: add COUNT(*) AS number."
            )


def _split_alias(column: Phrase) -> tuple[Phrase, Phrase | None]:
    """Return a result column without its alias, and the alias."""
    cursor = Cursor(column)
    value = cursor.take_until(TokenType.ALIAS)
    if cursor.skip(TokenType.ALIAS):
        alias = cursor.rest
        if alias.name is None:
            raise alias.error(f"a name must follow AS (got {alias}).")
        return value, alias
    # AS may be left out behind a call.
    call = column.tokens[:-1]
    if call and call[-1].token_type is TokenType.R_PAREN:
        alias = Phrase(column.sql, column.tokens[-1:], column.end)
        if alias.name is not None:
            return Phrase(column.sql, call, call[-1].end + 1), alias
    return value, None


def _spell_bound(value: Phrase) -> str:
    """Return a result column as the bounds of windows are spelled: in lower case, unquoted."""
    return value.write().lower().replace("`", "")


def _check_name(name: str, place: Phrase, further: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a name that is not valid for a result column, or that Tidemark uses itself."""
    if not NAME.fullmatch(name):
        raise place.error(
            f"'{name}' is not a valid name for a result column: use lower-case letters, digits and "
            "underscores, and start with a letter."
        )
    table = find_table(name, WINDOW_TABLES, further)
    if table is not None:
        raise place.error(
            f"'{name}' is reserved: Tidemark adds a column of this name to the {table}. Choose "
            f"another name, such as own_{name}."
        )
