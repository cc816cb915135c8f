"""Chains: the windows of an asset as the events of a source.

| rows | content | aggregates over the chain |
| --- | --- | --- |
| `final` | each window once, when nothing can change it any more | all |
| `changes` | each firing, after a retraction of the row that it replaces | count, sum, mean |
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.define.column_type import UnknownTypeError, simple_type
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import INSTANT, DerivedSource, WatermarkOfBases
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import EVENT_TABLES, find_table
from tidemark.define.windows import Global

ChainRows = Literal["final", "changes"]
FIRST = "window_first"
LAST = "window_last"
"""The columns with the first and the last instant of a window."""
RETRACTION = "retraction"
"""The BOOLEAN column of a chain with `rows="changes"` that is true in retractions."""

_FindTypes = Callable[[str], Mapping[str, str]]
"""A function that returns the columns of a table with their types; none if it does not exist."""
_find_types: ContextVar[_FindTypes] = ContextVar("find_types", default=lambda _: {})


@contextmanager
def types_of_tables(find: _FindTypes) -> Iterator[None]:
    """Take the types that definitions of chains do not determine from the tables of the assets."""
    token = _find_types.set(find)
    try:
        yield
    finally:
        _find_types.reset(token)


@dataclass(frozen=True)
class Chain:
    """The derivation of a chain: which windows of which asset are the events of the source.

    Args:
        asset: the asset whose windows are the events.
        rows: `final` for the asset's final windows, `changes` for each firing.
    """

    asset: Definition
    rows: ChainRows

    added_columns = (FIRST, LAST, RETRACTION)
    lineage_columns = ()
    partner_keys = None
    sql_expressions = MappingProxyType[str, str]({})

    @property
    def base_sources(self) -> tuple[Source, ...]:
        return (self.asset.source,)

    @property
    def deciding_arguments(self) -> tuple[object, ...]:
        # The wait decides which windows were final, and so which windows a step has taken.
        return self.asset.name, self.rows, self.settling_time

    @property
    def look_back(self) -> tuple[int, ...]:
        if self.rows == "final":
            return (self.settling_time,)
        return (0,)

    @property
    def settling_time(self) -> int:
        """How far the watermark must pass a window's end until nothing can change the window.

        In microseconds. For sessions it includes the gap: an event within a gap of a session's end
        can be on time and still extend the session.
        """
        return self.asset.allowed_lateness + self.asset.window.merge_gap

    def settled_end(self, watermark: int | None) -> int | None:
        """Return the latest end of windows that no event can change; None if there are none yet.

        Args:
            watermark: the watermark of the asset's source, in microseconds.
        """
        if watermark is None or watermark == INFINITY:
            return watermark
        return watermark - self.settling_time


@check_arguments
def chain(
    *, name: str, of: Definition, rows: str = "final", types: Mapping[str, str] | None = None
) -> DerivedSource:
    """Return a source with the windows of an asset or a roll-up.

    By default, each published window is one event. The event is added once, with the arrival after
    which the window can't change any more: when the watermark has passed the window's end by the
    allowed lateness, and for sessions also by the gap. The event time is the last instant of the
    window, in the column `window_last`. The events of a chain of final windows are never late.

    Example:
        hours = chain(name="hours", of=visits_hourly)

    Args:
        name: the name of the chain, with the same rules as for any source.
        of: the asset. Its keys and aggregates are columns of the chain.
        rows: "final" gives each window once. "changes" gives each firing of each window, and before
            it the row that the firing replaces, with `retraction` true. Assets over such a chain
            can use only counts, sums and means, which subtract retractions.
        types: the types of columns for which the definition does not determine a type, such as keys
            that the asset's function computes, and sums of DECIMAL values. If the asset has run,
            they can be omitted: Tidemark takes them from the asset's table.

    Raises:
        DefinitionError: the asset has a global window, the type of a column is missing, or a column
            has a reserved name.
    """
    if rows not in get_args(ChainRows):
        raise _chain_error(name, f"rows must be 'final' or 'changes' (got '{rows}')")
    if isinstance(of.window, Global):
        raise _chain_error(
            name,
            f"the window of '{of.name}' is global, so its end is not an event time. Give the asset "
            "other windows",
        )
    declared_types = types or {}
    asset_columns = of.result_columns
    for column in declared_types:
        if column not in asset_columns:
            raise _chain_error(
                name,
                f"types has '{column}', which is not among the columns of '{of.name}': "
                f"{', '.join(asset_columns)}",
            )
    for column in asset_columns:
        table = find_table(column, EVENT_TABLES)
        if table is not None:
            addition = f"Tidemark adds a column of this name to the {table}"
        elif column in (FIRST, LAST, RETRACTION):
            addition = "a chain adds a column of this name"
        else:
            continue
        raise _chain_error(
            name,
            f"'{of.name}' has the column '{column}', which can't be a column of a source: "
            f"{addition}. Rename it in '{of.name}'",
        )
    columns = {column: _find_type(name, of, column, declared_types) for column in asset_columns}
    columns |= {FIRST: INSTANT, LAST: INSTANT}
    retraction = None
    if rows == "changes":
        retraction = RETRACTION
        columns[RETRACTION] = "boolean"
    return DerivedSource(
        name=name,
        columns=columns,
        event_time=LAST,
        watermark=WatermarkOfBases(),
        derivation=Chain(of, rows),  # pyright: ignore[reportArgumentType]  (checked above)
        retraction=retraction,
    )


def _find_type(name: str, asset: Definition, column: str, declared_types: Mapping[str, str]) -> str:
    source_types = {
        source_column: simple_type(column_type)
        for source_column, column_type in asset.source.columns.items()
    }
    aggregate = asset.aggregates.get(column)
    column_type = declared_types.get(column) or (
        aggregate.result_type(source_types) if aggregate else source_types.get(column)
    )
    column_type = column_type or _find_types.get()(asset.published_table).get(column)
    if column_type is None:
        described = f"the key '{column}'" if aggregate is None else f"'{column}' ({aggregate})"
        raise _chain_error(
            name,
            f"the type of {described} can't be determined from the definition of '{asset.name}' "
            f"or from its table. Specify it, as in types={{'{column}': 'STRING'}}",
        )
    try:
        return simple_type(column_type)
    except UnknownTypeError as error:
        raise _chain_error(
            name, f"'{column}' can't have the type '{column_type}': {error}"
        ) from None


def _chain_error(name: str, why: str) -> DefinitionError:
    return DefinitionError(f"Chain '{name}': {why}.")
