"""Read an expression over the columns of a source."""

from collections.abc import Iterable, Mapping

from sqlglot import Token, TokenType
from sqlglot import expressions as exp
from sqlglot.errors import ParseError

from tidemark.base.determinism import find_nondeterminism
from tidemark.define.column_spelling import write_column
from tidemark.define.source import Source
from tidemark.define.sql.sql_text import SPARK, Phrase, SqlError
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS


def read_expression(phrase: Phrase, source: Source, aggregates: Iterable[str]) -> str:
    """Return an expression as users write it in Python: in one line, with the source's columns.

    Args:
        aggregates: the names of aggregate functions, in lower case.
    """
    if not phrase.tokens:
        raise phrase.error("an expression is missing: write one, as in SUM(amount).")
    _refuse_queries(phrase)
    _refuse_double_quotes(phrase)
    _refuse_aggregates(phrase, aggregates)
    tree = _parse(phrase)
    written = phrase.write(_spell_columns(phrase, tree, source))
    fault = find_nondeterminism(written)
    if fault is not None:
        raise phrase.error(
            f"{phrase} {fault}. Rows are computed more than once, for example in a backfill, and "
            "must be equal each time: use only columns and functions of columns."
        )
    return written


def is_number(phrase: Phrase) -> bool:
    """Return whether a phrase is one number."""
    return [token.token_type for token in phrase.tokens] == [TokenType.NUMBER]


def find_column(phrase: Phrase, source: Source) -> str | None:
    """Return the source's column that a name specifies. Case counts only between backticks."""
    name = phrase.name
    if name is None:
        return None
    if phrase.tokens[0].token_type is TokenType.IDENTIFIER and name in source.columns:
        return name
    return _match_column(name, source.columns)


def refuse_unknown_column(phrase: Phrase, source: Source, advice: str = "") -> SqlError:
    """Return the error of a name that is not a column of the source."""
    return phrase.error(f"{phrase} {_describe_columns(source)}{advice}")


def _match_column(name: str, columns: Iterable[str]) -> str | None:
    """Return the column with that name, without regard to case, as in Spark."""
    return next((column for column in columns if column.lower() == name.lower()), None)


def _refuse_queries(phrase: Phrase) -> None:
    select = phrase.contains(TokenType.SELECT)
    if select is not None:
        raise phrase.sql.error(
            select.start,
            "a subquery can't be used: an asset reads one source. For values of another table, "
            "use a lookup table in Python, or a join (tm.join, tm.asof_join).",
        )
    over = phrase.contains(TokenType.OVER)
    if over is not None:
        raise phrase.sql.error(
            over.start,
            "OVER can't be used: compare events or windows where you read the table.",
        )


def _refuse_double_quotes(phrase: Phrase) -> None:
    for token in phrase.tokens:
        if token.token_type is TokenType.STRING and phrase.sql.text[token.start] == '"':
            raise phrase.sql.error(
                token.start,
                f'"{token.text}" is a text in Spark and a column in other systems: write '
                f"'{token.text}' for a text, or `{token.text}` for a column.",
            )


def _refuse_aggregates(phrase: Phrase, aggregates: Iterable[str]) -> None:
    names = set(aggregates)
    for token, following in zip(phrase.tokens, phrase.tokens[1:], strict=False):
        if following.token_type is not TokenType.L_PAREN or token.text.lower() not in names:
            continue
        if token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            raise phrase.sql.error(
                token.start,
                f"the aggregate {token.text} can't be used within an expression: give it a column "
                "of its own, and compute with it where you read the table.",
            )


def _parse(phrase: Phrase) -> exp.Expr:
    """Return the syntax tree of an expression."""
    try:
        (tree,) = SPARK.parser().parse(list(phrase.tokens), phrase.sql.text)
    except ParseError as error:
        raise _syntax_error(phrase, error) from None
    if tree is None or isinstance(tree, exp.Alias):
        raise phrase.error(f"{phrase} is not one expression: is an operator missing, or a comma?")
    return tree


def _syntax_error(phrase: Phrase, error: ParseError) -> SqlError:
    """Return the error of an expression that can't be parsed, with the place of the wrong token."""
    (fault, *_) = error.errors
    place = (fault.get("line"), fault.get("col"))
    token = next((t for t in phrase.tokens if (t.line, t.col) == place), phrase.tokens[-1])
    return phrase.sql.error(
        token.start, f"{phrase} is not an expression of Spark SQL: see '{token.text}'."
    )


def _spell_columns(phrase: Phrase, tree: exp.Expr, source: Source) -> dict[int, str]:
    """Return the names of columns as the source has them, by the offset of their tokens."""
    columns: Mapping[str, str] = {**source.columns, **ARRIVAL_COLUMNS}
    by_start: dict[int, Token] = {token.start: token for token in phrase.tokens}
    spelled = dict[int, str]()
    for column in tree.find_all(exp.Column):
        (first, *fields) = column.parts
        offset = first.meta.get("start", phrase.start)
        found = _match_column(first.name, columns)
        if found is None:
            raise phrase.sql.error(offset, _describe_unknown(first.name, fields, source))
        quoted = by_start[offset].token_type is TokenType.IDENTIFIER
        spelled[offset] = write_column(found) if quoted else found
    return spelled


def _describe_unknown(name: str, fields: list[exp.Expr], source: Source) -> str:
    """Return the message for a name that is not a column."""
    if name.lower() == source.name and fields:
        return f"write the column {fields[0].name} without '{name}.', or with the name behind FROM."
    return f"'{name}' {_describe_columns(source)}"


def _describe_columns(source: Source) -> str:
    columns = ", ".join(source.columns)
    return f"is not a column of source '{source.name}'; its columns are {columns}."
