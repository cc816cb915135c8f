"""The public function for windowed assets in SQL."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.define.sink import Sink
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.uniqueness import Deduplicate


@check_arguments
def sql_asset(
    *,
    name: str,
    source: Source,
    sql: str | Path,
    description: str = "",
    allowed_lateness: str | timedelta = "0 seconds",
    trigger: Trigger | None = None,
    accumulation: str | None = None,
    deduplicate: Deduplicate | None = None,
    expectations: Sequence[object] = (),
    sink: Sink | None = None,
) -> WindowedTransform:
    """Define a windowed aggregation in SQL: a `SELECT` over windows of one source.

    The result is the definition that `windowed_asset` gives for the same windows, keys, aggregates
    and filter, with the same fingerprint: you can move from one to the other without a rebuild. The
    function is `def sales_hourly(rows): return rows.where("amount > 0")` if the text has
    `WHERE amount > 0`, and `return rows` without `WHERE`.

    Example:
        sales = tm.Source(
            name="sales",
            columns="at TIMESTAMP, city STRING, amount BIGINT",
            event_time="at",
            watermark=tm.BoundedOutOfOrderness("10 minutes"),
        )
        tm.sql_asset(
            name="sales_hourly",
            source=sales,
            allowed_lateness="1 hour",
            sql='''
                SELECT window_start, window_end, city, COUNT(*) AS orders, SUM(amount) AS revenue
                FROM TUMBLE(TABLE sales, DESCRIPTOR(at), INTERVAL '1' HOUR)
                WHERE amount > 0
                GROUP BY window_start, window_end, city
            ''',
        )

    Args:
        name: the name of the asset, and of its table.
        source: the source that `FROM` names, which may be a derived source.
        sql: the text, or the path of a file with the text.
        description: the description of the asset.
        allowed_lateness: as in `windowed_asset`.
        trigger: as in `windowed_asset`.
        accumulation: as in `windowed_asset`.
        deduplicate: as in `windowed_asset`.
        expectations: as in `windowed_asset`.
        sink: as in `windowed_asset`.

    Raises:
        DefinitionError: the text can't be a definition; the message begins with its line and
            column, and says what is allowed.
    """
    # sqlglot takes a third of a second to load, which programs without SQL need not wait for.
    from tidemark.define.sql.query import read_query
    from tidemark.define.sql.sql_text import SqlText

    text = _read_file(name, sql) if isinstance(sql, Path) else sql
    query = read_query(SqlText(text, _locate_in(name, sql)), source)
    return WindowedTransform(
        name=name,
        description=description,
        source=source,
        keys=tuple(query.keys),
        window=query.window,
        allowed_lateness=parse_duration(allowed_lateness),
        aggregates=query.aggregates,
        function=query.function,
        trigger=trigger or Trigger(),
        accumulation=accumulation,
        deduplicate=deduplicate,
        expectations=tuple(expectations),  # pyright: ignore[reportArgumentType]
        sink=sink,
    )


def _read_file(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except UnicodeDecodeError:
        reason = "it is not valid UTF-8 text"
    raise DefinitionError(f"Asset '{name}': the file {path} can't be read: {reason}.")


def _locate_in(name: str, sql: str | Path) -> Callable[[int, int], str]:
    """Return a function that describes a line and a column of a text or a file."""
    if isinstance(sql, Path):
        return lambda line, column: f"{sql}:{line}:{column}"
    return lambda line, column: f"Asset '{name}', line {line}, column {column} of its SQL"
