"""Read windows: Flink's table functions, and Spark's functions in `GROUP BY`.

FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)
FROM CALENDAR(TABLE orders, DESCRIPTOR(at), 'month', 'Europe/Paris')
FROM orders … GROUP BY window(at, '1 hour')

`CALENDAR` and `GLOBAL` are Tidemark's own, because neither of the two has such windows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType

from tidemark.base.instants import parse_duration
from tidemark.define.source import Source
from tidemark.define.sql.expression import find_column, refuse_unknown_column
from tidemark.define.sql.sql_text import Cursor, Phrase, list_choices
from tidemark.define.sql.statement import refuse_rest_of_table
from tidemark.define.windows import (
    Calendar,
    Cumulating,
    Global,
    Session,
    Sliding,
    Tumbling,
    Window,
)

_DATA = "data"
_TIME = "timecol"


def _read_length(phrase: Phrase) -> str:
    """Return a length of time: `INTERVAL '1' HOUR`, `INTERVAL 1 HOUR` or `'1 hour'`."""
    is_text = [token.token_type for token in phrase.tokens] == [TokenType.STRING]
    text = phrase.tokens[0].text if is_text else phrase.write()
    with phrase.locate_errors():
        parse_duration(text)
    return text


def _read_text(phrase: Phrase) -> str:
    """Return a text in single quotes."""
    is_text = [token.token_type for token in phrase.tokens] == [TokenType.STRING]
    if not is_text or phrase.write().startswith('"'):
        raise phrase.error(f"{phrase} must be a text in single quotes, as in 'month'.")
    return phrase.tokens[0].text


@dataclass(frozen=True)
class _Function:
    """A function of windows.

    Args:
        required: the names of its arguments behind the event time, in their order.
        optional: the names of further arguments.
        make: returns the window, from the arguments by name.
        read: returns the value of an argument.
        example: an argument, for error messages.
        needs_time: true if the event time must be given.
    """

    required: Sequence[str]
    optional: Sequence[str]
    make: Callable[..., Window]
    read: Callable[[Phrase], str] = _read_length
    example: str = "INTERVAL '1' HOUR"
    needs_time: bool = True


def _make_spark_window(
    size: str, slide: str | None = None, offset: str = "0 seconds"
) -> Tumbling | Sliding:
    """Return Spark's `window`: windows whose slide is their size do not overlap."""
    if slide is None or parse_duration(slide) == parse_duration(size):
        return Tumbling(size, offset)
    return Sliding(size, slide, offset)


_TABLE_FUNCTIONS = {
    "TUMBLE": _Function(("size",), ("offset",), Tumbling),
    "HOP": _Function(("slide", "size"), ("offset",), Sliding),
    "CUMULATE": _Function(("step", "size"), ("offset",), Cumulating),
    "SESSION": _Function(("gap",), (), Session),
    "CALENDAR": _Function(("unit",), ("timezone",), Calendar, _read_text, "'month'"),
    "GLOBAL": _Function((), (), Global, needs_time=False),
}
_GROUP_FUNCTIONS = {
    "WINDOW": _Function(("size",), ("slide", "offset"), _make_spark_window),
    "SESSION_WINDOW": _Function(("gap",), (), Session),
}
_SPELLINGS = (
    "write FROM TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR), or HOP, CUMULATE, "
    "SESSION, CALENDAR or GLOBAL, or GROUP BY window(at, '1 hour')"
)


@dataclass(frozen=True)
class SqlWindow:
    """The windows that a `SELECT` names by a table function, such as `TUMBLE`.

    Args:
        bounds: the spellings of the start and the end of a window, in lower case.
        partition_keys: the columns of `PARTITION BY`, which only a `SESSION` has.
        place: the call of the function.
    """

    window: Window
    bounds: Mapping[str, str]
    partition_keys: Sequence[str]
    place: Phrase


def read_table_function(table: Phrase, source: Source) -> SqlWindow | None:
    """Return the windows of `FROM`; None if it has only the name of the source."""
    cursor = Cursor(table)
    if not table.tokens:
        raise table.error(f"the table is missing: {_SPELLINGS}.")
    if cursor.is_at(TokenType.L_PAREN, TokenType.SELECT):
        raise table.error(
            "a subquery can't be used: name a source. To filter its events, use WHERE; to combine "
            "sources, tm.join or tm.union; to aggregate windows again, tm.chain."
        )
    if cursor.skip(TokenType.TABLE) and cursor.is_at(TokenType.L_PAREN):
        call = cursor.take_group()
        _check_end(cursor)
        return _read_call(Cursor(call), call, source)
    if len(table.tokens) > 1 and table.tokens[1].token_type is TokenType.L_PAREN:
        return _read_call(cursor, table, source)
    name = cursor.take()
    _check_source(name, source)
    _check_end(cursor)
    return None


def read_group_function(group: Phrase, source: Source) -> SqlWindow | None:
    """Return the windows of a part of `GROUP BY`; None if the part is not a call."""
    if len(group.tokens) < len("f()") or group.tokens[1].token_type is not TokenType.L_PAREN:
        return None
    cursor = Cursor(group)
    name = cursor.take()
    function = _GROUP_FUNCTIONS.get(name.tokens[0].text.upper())
    if function is None:
        return None
    arguments = cursor.take_group().split()
    _check_end(cursor)
    names = (_TIME, *function.required, *function.optional)
    values = _bind_arguments(name, arguments, names)
    _check_event_time(values.get(_TIME), name, source)
    spelling = name.tokens[0].text.lower()
    bounds = {f"{spelling}.start": "window_start", f"{spelling}.end": "window_end"}
    return SqlWindow(_make_window(name, function, values), bounds, (), group)


def _read_call(cursor: Cursor, call: Phrase, source: Source) -> SqlWindow:
    name = cursor.take()
    function = _TABLE_FUNCTIONS.get(str(name.name).upper())
    if function is None:
        raise name.error(f"{name} is not a function of windows; {list_choices(_TABLE_FUNCTIONS)}.")
    if not cursor.is_at(TokenType.L_PAREN):
        raise cursor.rest.error(f"{name} needs its arguments: {_SPELLINGS}.")
    arguments = cursor.take_group().split()
    _check_end(cursor)
    names = (_DATA, _TIME, *function.required, *function.optional)
    values = _bind_arguments(name, arguments, names)
    keys = _read_data(values.get(_DATA), name, source)
    if function.needs_time or _TIME in values:
        _check_event_time(values.get(_TIME), name, source)
    if keys and function.make is not Session:
        raise call.error("PARTITION BY is for SESSION only: list the keys in GROUP BY alone.")
    bounds = {"window_start": "window_start", "window_end": "window_end"}
    return SqlWindow(_make_window(name, function, values), bounds, keys, call)


def _bind_arguments(
    function: Phrase, arguments: Sequence[Phrase], names: Sequence[str]
) -> dict[str, Phrase]:
    """Return the arguments of a call by name. They are in order, or have names: `SIZE => …`."""
    values = dict[str, Phrase]()
    for number, argument in enumerate(arguments):
        if not argument.tokens:
            raise argument.error("an argument is missing: write one, or remove the comma.")
        cursor = Cursor(argument)
        name = cursor.take().name
        if cursor.skip(TokenType.FARROW):
            value = cursor.rest
        else:
            name = names[number] if number < len(names) else None
            value = argument
        if name is None or name not in names:
            raise argument.error(
                f"{argument} is not an argument of {function.write()}; its arguments are "
                f"{', '.join(names)}."
            )
        if name in values:
            raise argument.error(f"the argument {name} is given twice: remove one.")
        values[name] = value
    return values


def _make_window(function: Phrase, kind: _Function, values: Mapping[str, Phrase]) -> Window:
    arguments = dict[str, str]()
    for name in (*kind.required, *kind.optional):
        if name in values:
            arguments[name] = kind.read(values[name])
        elif name in kind.required:
            raise function.error(
                f"{function.write()} needs the {name} of its windows, as in {kind.example}."
            )
    with function.locate_errors():
        return kind.make(**arguments)


def _read_data(data: Phrase | None, function: Phrase, source: Source) -> list[str]:
    """Return the columns of `PARTITION BY`, after a check that the source is named."""
    if data is None:
        raise function.error(f"{function.write()} needs its table, as in TABLE {source.name}.")
    cursor = Cursor(data)
    cursor.skip(TokenType.TABLE)
    if cursor.is_at(TokenType.L_PAREN, TokenType.SELECT):
        raise cursor.rest.error(
            "a subquery can't be used: name a source, and filter its events with WHERE."
        )
    _check_source(cursor.take(), source)
    if not cursor.skip(TokenType.PARTITION_BY):
        _check_end(cursor)
        return []
    columns = cursor.take_group() if cursor.is_at(TokenType.L_PAREN) else cursor.rest
    keys = list[str]()
    for column in columns.split():
        key = find_column(column, source)
        if key is None:
            raise refuse_unknown_column(column, source)
        keys.append(key)
    return keys


def _check_event_time(column: Phrase | None, function: Phrase, source: Source) -> None:
    if column is None:
        raise function.error(
            f"{function.write()} needs the event time, as in DESCRIPTOR({source.event_time})."
        )
    cursor = Cursor(column)
    if cursor.skip_word("DESCRIPTOR") and cursor.is_at(TokenType.L_PAREN):
        column = cursor.take_group()
        _check_end(cursor)
    if find_column(column, source) != source.event_time:
        raise column.error(
            f"windows are by event time: write {source.event_time}, the event time of source "
            f"'{source.name}' (got {column})."
        )


def _check_source(name: Phrase, source: Source) -> None:
    if name.name != source.name:
        raise name.error(
            f"{name} is not the source of this definition: write {source.name}, or change its "
            "source."
        )


def _check_end(cursor: Cursor) -> None:
    """Refuse tokens behind what a cursor has read."""
    if cursor.token is not None:
        raise refuse_rest_of_table(cursor.rest)
