"""The one definition: a windowed transform.

What is computed, by which keys, over which windows, how late an event may be. The decorated
function is the row-level preparation; all else is data, read without running anything by the
batch and the streaming runner, the orchestrator and the command line alike.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql import DataFrame

from tidemark.aggregate import Aggregate
from tidemark.errors import DefinitionError
from tidemark.instant import duration
from tidemark.source import ARRIVAL_COLUMNS, NAME, Source, check_name
from tidemark.trigger import Trigger
from tidemark.window import Window

RESERVED = (
    *("window_start", "window_end", "verdict", "admitted", "slot", "events", "late_events"),
    *("revision", "timing", "final", "last_arrival", "as_of", "seq", "marker", "lost"),
    *("pane", "last", "retraction", "phase", "firing", "fired", "reached", "happened_at"),
    *ARRIVAL_COLUMNS,
)

ACCUMULATIONS = ("accumulating", "discarding", "retracting")


@dataclass(frozen=True)
class WindowedTransform:
    """A windowed aggregation over a source. Made by `windowed_asset`."""

    name: str
    description: str
    source: Source
    keys: tuple[str, ...]
    window: Window
    allowed_lateness: int
    aggregates: Mapping[str, Aggregate]
    function: Callable[[DataFrame], DataFrame]
    trigger: Trigger = field(default_factory=Trigger)
    accumulation: str | None = None

    def __post_init__(self) -> None:
        check_name("asset", self.name)
        if not self.aggregates:
            raise DefinitionError(f"Asset '{self.name}' has no aggregates; name at least one.")
        given: Mapping[str, object] = self.aggregates
        for column, aggregate in given.items():
            if not isinstance(aggregate, Aggregate):
                raise DefinitionError(
                    f"Asset '{self.name}': aggregate '{column}' ({aggregate}) can't merge, so it "
                    "can't be computed from parts; use one of tidemark.aggregate (quantile(x, 0.5) "
                    "for a median, top_k(x, 1) for a mode, count_distinct, collect, …) or an "
                    "Aggregate of your own with partial, merge and finish."
                )
        for column in (*self.keys, *self.aggregates):
            self._check_column(column)
        if self.allowed_lateness < 0:
            raise DefinitionError(f"Asset '{self.name}': the allowed lateness is negative.")
        if self.accumulation not in (None, *ACCUMULATIONS):
            raise DefinitionError(
                f"Asset '{self.name}': the accumulation is one of {', '.join(ACCUMULATIONS)}, or "
                f"none, not '{self.accumulation}'."
            )

    def _check_column(self, column: str) -> None:
        if not NAME.fullmatch(column):
            raise DefinitionError(
                f"Asset '{self.name}': '{column}' can't name a column: use lower-case letters, "
                "digits and underscores, a letter first."
            )
        if column in RESERVED or (column in self.keys and column in self.aggregates):
            raise DefinitionError(
                f"Asset '{self.name}': the column name '{column}' is taken; choose another "
                f"(reserved are {', '.join(RESERVED)})."
            )

    @property
    def by_window(self) -> list[str]:
        """The columns that tell one published row from another."""
        return ["window_start", "window_end", *self.keys]

    @property
    def table(self) -> str:
        """The published table: one row for each window and keys."""
        return self.name

    @property
    def state_table(self) -> str:
        """The stored panes: partials, by window, keys and slot."""
        return f"{self.name}_state"

    @property
    def panes_table(self) -> str:
        """Every firing of every window; there where `accumulation` is set."""
        return f"{self.name}_panes"

    @property
    def late_table(self) -> str:
        """Events that came too late, or without an event time."""
        return f"{self.name}_late"

    @property
    def late_loss_table(self) -> str:
        """Windows that lack too-late events: the answer as streamed beside the complete one."""
        return f"{self.name}_late_loss"

    def prepare(self, rows: DataFrame) -> DataFrame:
        """The row-level preparation, checked to keep each event's time and arrival.

        Raises:
            DefinitionError: the function drops a column that judging needs, or a key is missing.
        """
        prepared = self.function(rows)
        needed = [self.source.event_time, *ARRIVAL_COLUMNS, *self.keys]
        missing = [c for c in needed if c not in prepared.columns]
        if missing:
            raise DefinitionError(
                f"Asset '{self.name}': its function's result has no column '{missing[0]}'; it "
                f"has {', '.join(prepared.columns)}. Keys, the event time and the facts of an "
                "arrival must come out of it (add columns rather than select a few)."
            )
        return prepared


def windowed_asset(
    *,
    source: Source,
    window: Window,
    aggregates: Mapping[str, Aggregate],
    keys: Sequence[str] = (),
    allowed_lateness: str | timedelta = "0 seconds",
    trigger: Trigger | None = None,
    accumulation: str | None = None,
) -> Callable[[Callable[[DataFrame], DataFrame]], WindowedTransform]:
    """Define a windowed aggregation; the decorated function prepares the source's rows.

    The function gets the log's rows and gives rows: it may add, cast and filter, without changing
    the event time. Its name names the asset and its docstring describes it.

    Args:
        source: where the events come from.
        window: which spans of event time they belong to.
        aggregates: result column to aggregate.
        keys: columns of the function's result; one answer for each of their combinations.
        allowed_lateness: how long after the watermark passed a window's end an event still counts.
        trigger: when a window's result is published beside its end; by default again at each
            arrival that brings it late events.
        accumulation: keep a table of panes, a row for each firing, that holds the events of that
            firing alone (`discarding`), all events so far (`accumulating`), or these and before
            them the previous row again as a retraction (`retracting`).

    Raises:
        DefinitionError: a definition that no run could follow, in one sentence.
    """

    def define(function: Callable[[DataFrame], DataFrame]) -> WindowedTransform:
        return WindowedTransform(
            name=function.__name__,
            description=inspect.getdoc(function) or "",
            source=source,
            keys=tuple(keys),
            window=window,
            allowed_lateness=duration(allowed_lateness),
            aggregates=dict(aggregates),
            function=function,
            trigger=trigger or Trigger(),
            accumulation=accumulation,
        )

    return define
