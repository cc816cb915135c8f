"""Definitions of assets: windows over a source's events, by key, and their aggregates.

The two kinds of definition differ in the origin of their partials. A windowed transform aggregates
the events of its source (`transform`); a roll-up merges the partials of another asset (`rollup`).
Everything else is the same for both, and is plain data that can be read without running anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import format_duration
from tidemark.define import tables
from tidemark.define.aggregates import Aggregate
from tidemark.define.expectations.expectation import Expectation
from tidemark.define.expectations.general import as_expectation
from tidemark.define.expectations.windowed import values_fit
from tidemark.define.sink import Sink
from tidemark.define.source import NAME, Source, check_name
from tidemark.define.tables import Role, TableName
from tidemark.define.tidemark_columns import EVENT_TABLES, WINDOW_TABLES, find_table
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.windows import Window

COMPLETE = "_complete"
"""Suffix of a column in the late-loss table: the aggregate's value including too-late events. The
column without the suffix has the streamed value.
"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Definition(ABC):
    """The base class of the definitions of assets: windowed transforms and roll-ups.

    Fields that are not described here have the meaning of the arguments of `windowed_asset`.

    Args:
        allowed_lateness: as in `windowed_asset`, in microseconds.
        side_of: for the side tables of a rebuild or a replay, the asset that owns them; otherwise
            None. Side tables have different names, so that the asset's tables stay unchanged.
    """

    name: str
    description: str
    source: Source
    keys: tuple[str, ...]
    window: Window
    allowed_lateness: int
    aggregates: Mapping[str, Aggregate]
    trigger: Trigger = field(default_factory=Trigger)
    accumulation: str | None = None
    expectations: tuple[Expectation, ...] = ()
    sink: Sink | None = None
    side_of: str | None = None

    def __post_init__(self) -> None:
        check_name("asset", self.name)
        if not self.aggregates:
            raise DefinitionError(f"Asset '{self.name}' has no aggregates: give at least one.")
        aggregates: Mapping[str, object] = self.aggregates
        for column, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise DefinitionError(
                    f"Asset '{self.name}': '{column}' must be an aggregate of tidemark.agg, "
                    f"such as agg.count() (got {aggregate}). Use agg.quantile(x, 0.5) for a "
                    "median, agg.top_k(x, 1) for a mode, or your own Aggregate with partial, merge "
                    "and finish."
                )
        for column in self.result_columns:
            self._check_column(column)
        for number, key in enumerate(self.keys):
            if key in self.keys[:number]:
                raise DefinitionError(
                    f"Asset '{self.name}': the key '{key}' is given twice: remove one."
                )
        if self.allowed_lateness < 0:
            raise DefinitionError(
                f"Asset '{self.name}': allowed_lateness must not be negative (got "
                f"'{format_duration(self.allowed_lateness)}')."
            )
        if self.sink is not None and self.accumulation is None:
            raise DefinitionError(
                f"Asset '{self.name}' publishes to {self.sink}, so accumulation must be "
                "set: 'accumulating', 'discarding' or 'retracting'."
            )
        self._check_expectations()

    def __repr__(self) -> str:
        """Return a short text, which Dagster shows if a user gives it this definition."""
        return (
            f"<{type(self).__name__} '{self.name}': for Dagster, use "
            f"tidemark.dagster.dagster_asset({self.name}, partitions_def=…)>"
        )

    @property
    @abstractmethod
    def state_table(self) -> TableName:
        """The table of stored partials from which the asset's windows are computed."""

    @property
    def rolled_up_name(self) -> str | None:
        """The name of the asset whose partials are merged; None if this asset aggregates events."""
        return None

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The keys and the columns of the aggregates."""
        return tuple(self.keys) + tuple(self.aggregates)

    @property
    def base_owners(self) -> tuple[str, ...]:
        """The owners of the tables that this asset reads: its source, and a roll-up's base."""
        source_owner = tables.source_owner(self.source.name)
        if self.rolled_up_name is None:
            return (source_owner,)
        return (tables.asset_owner(self.rolled_up_name), source_owner)

    @property
    def further_details(self) -> Mapping[str, str]:
        """Further information about the asset, as readable labels and values."""
        return {}

    @property
    def own_tables(self) -> list[TableName]:
        """The tables that only this asset writes, in the order in which they are dropped."""
        return [self.published_table, self.panes_table, self.quarantine_table]

    @property
    def late_tables(self) -> list[TableName]:
        """The tables of this asset that describe too-late events."""
        return []

    @property
    def all_expectations(self) -> tuple[Expectation, ...]:
        """All expectations that rows must meet: the declared ones, and `values_fit()` if an
        aggregate can exceed its type."""
        fit = values_fit()
        names = [expectation.name for expectation in self.expectations]
        can_overflow = any(a.overflowed is not None for a in self.aggregates.values())
        if can_overflow and fit.name not in names:
            return (*self.expectations, fit)
        return self.expectations

    def _check_expectations(self) -> None:
        declared: Sequence[object] = self.expectations
        converted = tuple(_convert(expectation) for expectation in declared)
        object.__setattr__(self, "expectations", converted)
        names = set[str]()
        for expectation in converted:
            expectation.check_definition(self)
            if expectation.name in names:
                raise DefinitionError(
                    f"Asset '{self.name}': expectation {expectation.name} is given twice: remove "
                    "one."
                )
            names.add(expectation.name)

    def _check_column(self, column: str) -> None:
        if not NAME.fullmatch(column):
            raise DefinitionError(
                f"Asset '{self.name}': '{column}' is not a valid column name: use lower-case "
                "letters, digits and underscores, and start with a letter."
            )
        is_key = column in self.keys
        if is_key and column in self.aggregates:
            raise DefinitionError(
                f"Asset '{self.name}': '{column}' is both a key and an aggregate: rename the "
                "aggregate."
            )
        if is_key:
            way = f", by rename={{'{column}': 'own_{column}'}} of the source, or in the function"
            self._check_reserved(
                "key", column, find_table(column, WINDOW_TABLES, EVENT_TABLES), way
            )
        else:
            self._check_reserved("aggregate", column, find_table(column, WINDOW_TABLES), "")
        if column.removesuffix(COMPLETE) in self.aggregates and column.endswith(COMPLETE):
            raise DefinitionError(
                f"Asset '{self.name}': the column name '{column}' is taken: the late-loss table "
                f"uses it for the complete value of '{column.removesuffix(COMPLETE)}'. Choose "
                "another one."
            )

    def _check_reserved(self, kind: str, column: str, table: str | None, way: str) -> None:
        """Refuse a column whose name Tidemark uses in a table.

        Args:
            table: the table with a column of Tidemark's that has this name; None if there is none.
            way: how to give the column another name, for the message.
        """
        if table is not None:
            raise DefinitionError(
                f"Asset '{self.name}': the {kind} '{column}' can't have this name: Tidemark adds a "
                f"column '{column}' to the {table}. Give it another name, such as "
                f"'own_{column}'{way}."
            )

    @property
    def by_window(self) -> list[str]:
        """The columns that identify a published row."""
        return ["window_start", "window_end", *self.keys]

    @property
    def published_table(self) -> TableName:
        """The published table: one row per window and keys."""
        return self._name_table("", Role.PUBLISHED)

    @property
    def panes_table(self) -> TableName:
        """The table with every firing of every window; it exists if `accumulation` is set."""
        return self._name_table("_panes", Role.PANES)

    @property
    def quarantine_table(self) -> TableName:
        """The table of rows that failed an expectation.

        It exists if the asset has expectations, or if a value has exceeded its type.
        """
        return self._name_table("_quarantine", Role.QUARANTINE)

    def _name_table(self, suffix: str, role: Role) -> TableName:
        name = self.name + suffix
        if self.side_of is None:
            owner = tables.asset_owner(self.name)
            return TableName(name, owner, role, bases=self.base_owners)
        owner = tables.asset_owner(self.side_of)
        return TableName(name, owner, role, side=self.name, bases=self.base_owners)


def _convert(expectation: object) -> Expectation:
    if isinstance(expectation, Expectation):
        return expectation
    return as_expectation(expectation)
