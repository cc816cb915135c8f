"""Row assets: the events of one source, prepared row by row by a function of the user."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import DataFrame

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.define.column_type import simple_type
from tidemark.define.derived.derived_source import (
    NUMBER,
    DerivedSource,
    Lineage,
    WatermarkOfBases,
    own_columns,
    refuse_retractions,
)
from tidemark.define.derived.union import LINEAGE
from tidemark.define.preparation import Preparation
from tidemark.define.source import Source, read_columns


@dataclass(frozen=True)
class RowAsset:
    """The derivation of a row asset: the function that prepares the rows of its source."""

    preparation: Preparation

    asset = None
    added_columns = LINEAGE
    sql_expressions = MappingProxyType[str, str]({})
    look_back = (0,)
    lineage_columns = (Lineage(*LINEAGE),)
    partner_keys = ()

    @property
    def base_sources(self) -> tuple[Source, ...]:
        return (self.preparation.source,)

    @property
    def deciding_arguments(self) -> tuple[object, ...]:
        return self.preparation.function, tuple(self.preparation.lookup_names)


@check_arguments
def row_asset(
    *, source: Source, columns: Mapping[str, str] | str | None = None
) -> Callable[[Callable[..., DataFrame]], DerivedSource]:
    """Define a table of prepared rows; the decorated function prepares the source's rows.

    The rules for the function are those of a `windowed_asset`. It works row by row: it may add,
    cast, filter and explode, but must not change the event time. It may join the source's lookup
    tables, which it takes as further parameters by their names. The function's name is the row
    asset's name, and the table is `<name>_log`. The result for each event is in the table exactly
    once. The row asset is a source for other definitions.

    Example:
        @row_asset(source=visits, columns="at TIMESTAMP, page STRING, site STRING")
        def visits_by_site(visits):
            return visits.where("page IS NOT NULL").withColumn("site", F.split("page", "/")[0])

    Args:
        source: the source of the events, which may be a derived source.
        columns: the columns of the function's result that are kept, and their types, as in
            `Source`; by default, the columns of the source. The event time must be one of them.

    Raises:
        DefinitionError: the definition can't be run; the message says why.
    """

    def define_source(function: Callable[..., DataFrame]) -> DerivedSource:
        return make_row_asset(function.__name__, source, function, columns)

    return define_source


def make_row_asset(
    name: str,
    source: Source,
    function: Callable[..., DataFrame],
    columns: Mapping[str, str] | str | None,
) -> DerivedSource:
    """Return the row asset with a name, whose rows a function prepares, as `row_asset` does."""
    refuse_retractions(f"Row asset '{name}'", (source,))
    if columns is None:
        declared = {column: source.columns[column] for column in own_columns(source)}
    else:
        declared = read_columns(f"Row asset '{name}'", columns)
    for column in LINEAGE:
        if column in declared:
            raise DefinitionError(
                f"Row asset '{name}': the column '{column}' can't have this name, because "
                "Tidemark adds a column of this name. Choose another name."
            )
    types = {column: simple_type(kind) for column, kind in declared.items()}
    return DerivedSource(
        name=name,
        columns={**types, **dict.fromkeys(LINEAGE, NUMBER)},
        event_time=source.event_time,
        watermark=WatermarkOfBases(),
        max_future_skew=source.max_future_skew,
        derivation=RowAsset(Preparation(name, source, function, tuple(declared))),
    )
