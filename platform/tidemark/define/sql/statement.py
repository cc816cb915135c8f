"""Divide a `SELECT` into its clauses, and refuse clauses that a windowed asset can't have."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from tidemark.define.sql.sql_text import Cursor, Phrase, SqlError, SqlText

_ALLOWED = "A definition has SELECT, FROM, WHERE and GROUP BY only."
_WHERE_READ = "do it where you read the table."
_JOIN = "define the join with tm.join or tm.asof_join, and select from it."
_SET = "define the union with tm.union, and select from it."

_JOINS = (
    TokenType.JOIN,
    TokenType.STRAIGHT_JOIN,
    TokenType.LEFT,
    TokenType.RIGHT,
    TokenType.FULL,
    TokenType.INNER,
    TokenType.CROSS,
    TokenType.NATURAL,
    TokenType.SEMI,
    TokenType.ANTI,
    TokenType.COMMA,
)
"""Tokens that begin a join behind a table. Elsewhere, some are functions, such as `left`."""

_REFUSED = {
    TokenType.HAVING: f"To filter windows, {_WHERE_READ}",
    TokenType.QUALIFY: f"To filter windows, {_WHERE_READ}",
    TokenType.ORDER_BY: f"To order windows, {_WHERE_READ}",
    TokenType.SORT_BY: f"To order windows, {_WHERE_READ}",
    TokenType.DISTRIBUTE_BY: f"To order windows, {_WHERE_READ}",
    TokenType.CLUSTER_BY: f"To order windows, {_WHERE_READ}",
    TokenType.LIMIT: f"To limit the rows, {_WHERE_READ}",
    TokenType.FETCH: f"To limit the rows, {_WHERE_READ}",
    TokenType.OFFSET: f"To limit the rows, {_WHERE_READ}",
    TokenType.UNION: f"To read several sources, {_SET}",
    TokenType.INTERSECT: f"To read several sources, {_SET}",
    TokenType.EXCEPT: f"To read several sources, {_SET}",
    TokenType.LATERAL: "To explode rows, define the asset in Python.",
    TokenType.PIVOT: f"To pivot windows, {_WHERE_READ}",
    TokenType.UNPIVOT: f"To pivot windows, {_WHERE_READ}",
    TokenType.TABLE_SAMPLE: "Remove it: an asset counts every event.",
}
"""Clauses that are refused, with what to do instead."""

_AFTER_WHERE = (TokenType.GROUP_BY, TokenType.SEMICOLON, *_REFUSED)
_AFTER_FROM = (TokenType.WHERE, *_AFTER_WHERE)
_GROUPINGS = (TokenType.ROLLUP, TokenType.CUBE, TokenType.GROUPING_SETS, TokenType.ALL)


@dataclass(frozen=True)
class Statement:
    """The clauses of a `SELECT`.

    Args:
        columns: the result columns.
        table: the table, or the call of a table function.
        alias: the name that `FROM` gives the table, or None.
        condition: the condition of `WHERE`, or None.
        groups: the parts of `GROUP BY`.
    """

    sql: SqlText
    columns: Sequence[Phrase]
    table: Phrase
    alias: Phrase | None
    condition: Phrase | None
    groups: Sequence[Phrase]


def read_statement(sql: SqlText) -> Statement:
    """Return the clauses of the only statement in a text."""
    cursor = Cursor(sql.phrase)
    _check_begin(cursor)
    columns = cursor.take_until(TokenType.FROM, *_AFTER_FROM)
    if not cursor.skip(TokenType.FROM):
        raise _expect_clause(cursor, "FROM with the windows, as in FROM TUMBLE(TABLE orders, …)")
    table = cursor.take_until(*_AFTER_FROM)
    condition = None
    if cursor.skip(TokenType.WHERE):
        condition = cursor.take_until(*_AFTER_WHERE)
    if not cursor.skip(TokenType.GROUP_BY):
        raise _expect_clause(cursor, "GROUP BY, as in GROUP BY window_start, window_end")
    groups = cursor.take_until(*_AFTER_FROM)
    if cursor.token is not None and not cursor.is_at(TokenType.SEMICOLON):
        raise _refuse_clause(cursor, cursor.token)
    _check_end(cursor)
    if grouping := groups.contains(*_GROUPINGS):
        raise sql.error(
            grouping.start,
            f"{grouping.text.upper()} can't be used: define one asset for each combination of "
            "keys, and list the keys in GROUP BY.",
        )
    table, alias = _split_alias(table)
    return Statement(sql, columns.split(), table, alias, condition, groups.split())


def _split_alias(table: Phrase) -> tuple[Phrase, Phrase | None]:
    """Return the table of `FROM` without its alias, and the alias."""
    cursor = Cursor(table)
    cursor.take()
    if cursor.is_at(TokenType.L_PAREN):
        cursor.take_group()
    length = len(table.tokens) - len(cursor.rest.tokens)
    cursor.skip(TokenType.ALIAS)
    alias = cursor.rest
    if alias.name is None or cursor.is_at(*_JOINS):
        return table, None
    without = table.tokens[:length]
    return Phrase(table.sql, without, without[-1].end + 1), alias


def refuse_rest_of_table(rest: Phrase) -> SqlError:
    """Return the error of tokens behind the table of `FROM`."""
    token = rest.tokens[0]
    if token.token_type in _JOINS:
        return rest.error(f"a join can't be used: {_JOIN} {_ALLOWED}")
    return rest.error(f"{rest} behind the table can't be used: remove it. {_ALLOWED}")


def _check_begin(cursor: Cursor) -> None:
    if cursor.token is None:
        raise cursor.rest.error("the text is empty: write a SELECT.")
    if not cursor.is_at(TokenType.SELECT):
        raise cursor.rest.error(
            f"the text must begin with SELECT (got '{cursor.token.text}'): remove what is before "
            "it. A definition has one SELECT, without WITH, INSERT or CREATE."
        )
    cursor.take()
    if cursor.is_at(TokenType.DISTINCT):
        raise cursor.rest.error(
            "DISTINCT can't be used: remove it, because each window and combination of keys has "
            "one row."
        )


def _check_end(cursor: Cursor) -> None:
    while cursor.skip(TokenType.SEMICOLON):
        pass
    if cursor.token is not None:
        raise cursor.rest.error("a second statement can't be used: a definition has one SELECT.")


def _expect_clause(cursor: Cursor, clause: str) -> SqlError:
    """Return the error of a text that lacks a clause at a position."""
    if cursor.is_at(*_REFUSED) and cursor.token is not None:
        return _refuse_clause(cursor, cursor.token)
    return cursor.rest.error(f"the SELECT needs {clause}. {_ALLOWED}")


def _refuse_clause(cursor: Cursor, token: Token) -> SqlError:
    """Return the error of a clause that can't be used."""
    advice = _REFUSED.get(token.token_type, "Move it to its place before GROUP BY.")
    return cursor.rest.error(f"{token.text.upper()} can't be used. {advice} {_ALLOWED}")
