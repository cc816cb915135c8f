"""Windowed transforms, the definition that users write.

A definition specifies the aggregates, the keys, the windows and the allowed lateness of events. The
decorated function is the row-level preparation. Everything else is data, which the batch runner,
the streaming runner, the orchestrator and the command line read without calling the function.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Self

from pyspark.sql import DataFrame

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.define.aggregates import Aggregate
from tidemark.define.definition import Definition
from tidemark.define.derived.derived_source import retraction_column
from tidemark.define.preparation import Preparation
from tidemark.define.sink import Sink
from tidemark.define.source import Source
from tidemark.define.tables import Role, TableName
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.windows import Window

ACCUMULATIONS = ("accumulating", "discarding", "retracting")


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowedTransform(Definition):
    """A windowed aggregation over a source. Created by `windowed_asset`."""

    function: Callable[..., DataFrame]
    deduplicate: Deduplicate | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accumulation not in (None, *ACCUMULATIONS):
            raise DefinitionError(
                f"Asset '{self.name}': the accumulation must be one of "
                f"{', '.join(ACCUMULATIONS)}, or None (got '{self.accumulation}')."
            )
        if self.deduplicate is not None:
            self._check_id_columns(self.deduplicate.by)
        if (retraction := retraction_column(self.source)) is not None:
            self._subtract_retractions(retraction)
        # Checks the parameters of the function.
        _ = self.preparation

    def _check_id_columns(self, columns: Sequence[str]) -> None:
        for column in columns:
            if column not in self.source.columns:
                raise DefinitionError(
                    f"Asset '{self.name}': deduplicate uses the column '{column}', which is "
                    f"not among the columns of source '{self.source.name}': "
                    f"{', '.join(self.source.columns)}."
                )

    def _subtract_retractions(self, retraction: str) -> None:
        """Replace the aggregates by those that subtract retractions. Refuse all others."""
        signed = dict[str, Aggregate]()
        unable = list[str]()
        for name, aggregate in self.aggregates.items():
            if aggregate.signed is None:
                unable.append(f"'{name}' ({aggregate})")
            else:
                signed[name] = aggregate.signed(retraction)
        if self.deduplicate:
            unable.append("deduplicate")
        if unable:
            raise DefinitionError(
                f"Asset '{self.name}': {unable[0]} can't be used with the chain "
                f"'{self.source.name}', because only count, sum and mean can subtract its "
                "retractions. To use others, define the chain with rows='final'."
            )
        object.__setattr__(self, "aggregates", signed)

    @property
    def lookup_names(self) -> list[str]:
        """The names of the lookup tables that the function takes in addition to the rows."""
        return self.preparation.lookup_names

    @cached_property
    def preparation(self) -> Preparation:
        """The preparation of the source's rows by the function."""
        needed = list(self.keys)
        retraction = retraction_column(self.source)
        if retraction is not None:
            needed.append(retraction)
        return Preparation(
            self.name, self.source, self.function, tuple(needed), self.deduplicate is not None
        )

    @property
    def state_table(self) -> TableName:
        """The table of the asset's state: partials by window, keys and slot."""
        return self._name_table("_state", Role.STATE)

    @property
    def further_details(self) -> Mapping[str, str]:
        if self.deduplicate:
            return {"deduplicate": str(self.deduplicate)}
        return {}

    @property
    def own_tables(self) -> list[TableName]:
        return [self.state_table, *super().own_tables, *self.late_tables]

    @property
    def late_tables(self) -> list[TableName]:
        return [self.late_table, self.late_loss_table]

    @property
    def late_table(self) -> TableName:
        """The table of events that were too late or have no event time."""
        return self._name_table("_late", Role.LATE)

    @property
    def late_loss_table(self) -> TableName:
        """The table of windows that lack too-late events, with streamed and complete results."""
        return self._name_table("_late_loss", Role.LATE_LOSS)

    def with_side_tables(self, name: str) -> Self:
        """Return this definition with side tables and without a sink.

        The names of the side tables begin with `<asset>__<name>`. The tables belong to this asset.
        """
        return replace(
            self, name=f"{self.name}__{name}", side_of=self.side_of or self.name, sink=None
        )

    def prepare_rows(
        self, rows: DataFrame, lookups: Mapping[str, DataFrame] | None = None
    ) -> DataFrame:
        """Return the prepared rows, after a check that they have the event time, arrival and keys.

        Args:
            lookups: the tables that the function takes in addition to the rows, by name.

        Raises:
            DefinitionError: the function drops a key or a column that later steps need.
        """
        return self.preparation.prepare_rows(rows, lookups)


@check_arguments
def windowed_asset(
    *,
    source: Source,
    window: Window,
    aggregates: Mapping[str, Aggregate],
    keys: Sequence[str] = (),
    allowed_lateness: str | timedelta = "0 seconds",
    trigger: Trigger | None = None,
    accumulation: str | None = None,
    deduplicate: Deduplicate | None = None,
    expectations: Sequence[object] = (),
    sink: Sink | None = None,
) -> Callable[[Callable[..., DataFrame]], WindowedTransform]:
    """Define a windowed aggregation; the decorated function prepares the source's rows.

    The function takes rows of the event log and returns rows. It works row by row: it may add,
    cast, filter and explode, but must not change the event time. It may join the source's
    lookup tables, which it takes as further parameters by their names. The function's name is the
    asset's name, and its docstring is the asset's description.

    Example:
        @windowed_asset(
            source=visits,
            keys=["page"],
            window=Tumbling("1 hour"),
            allowed_lateness="1 hour",
            aggregates={"visits": agg.count()},
        )
        def visits_hourly(visits):
            return visits.where("page IS NOT NULL")

    Args:
        source: the source of the events.
        window: the kind of windows to which events are assigned, by event time.
        aggregates: the aggregate of each result column.
        keys: columns of the function's result; there is one result for each combination of values.
        allowed_lateness: an event counts if, when it arrives, the watermark has passed the end of
            its window by less than this time. Only on-time events count by default.
        trigger: when a window's result is published in addition to the firing at its end. By
            default, the result is published again at each arrival with late events of the window.
        accumulation: the content of the panes table, which has a row for each firing; by default,
            there is no such table. A row contains only the events of its firing (`discarding`), or
            all events so far (`accumulating`). With `retracting`, it contains all events so far,
            and follows a retraction, which repeats the previous row.
        deduplicate: how to recognize a duplicate event, which is not counted again. Without it,
            every event counts.
        expectations: the expectations that rows must meet to be published: those of
            `tidemark.expect`, and any expectation of Great Expectations.
        sink: a system that gets the asset's panes in addition to the asset's tables, such as a
            `KafkaSink`. The accumulation determines what the panes contain. The sink does not
            change any result.

    Raises:
        DefinitionError: the definition can't be run; the message says why.
    """

    def define_transform(function: Callable[..., DataFrame]) -> WindowedTransform:
        return WindowedTransform(
            name=function.__name__,
            description=inspect.getdoc(function) or "",
            source=source,
            keys=tuple(keys),
            window=window,
            allowed_lateness=parse_duration(allowed_lateness),
            aggregates=dict(aggregates),
            function=function,
            trigger=trigger or Trigger(),
            accumulation=accumulation,
            deduplicate=deduplicate,
            expectations=tuple(expectations),  # pyright: ignore[reportArgumentType]
            sink=sink,
        )

    return define_transform
