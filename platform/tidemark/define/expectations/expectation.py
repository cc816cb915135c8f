"""Expectations: conditions on the rows that a run is about to publish.

An expectation is declared with the transform. Every run validates its rows against all expectations
before anything is published. If rows fail at level `error`, they are quarantined and all others are
published. If rows fail at level `warning`, they are published and marked, and the failure is
recorded.

| expectation | validates | module |
| --- | --- | --- |
| general | the values of a row, or the rows of a run as a whole | `general` |
| windowed | a window, compared with the log, its earlier revision, or other windows | `windowed` |

Great Expectations validates general expectations; Tidemark itself validates windowed ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame

from tidemark.base.errors import DefinitionError
from tidemark.define.windows import Window

ERROR = "error"
"""The level at which rows that fail are quarantined."""

WARNING = "warning"
"""The level at which failures are only recorded."""

_FOR_PEOPLE = {"identifies": False}
"""Metadata of a field that is only for readers: it affects no validation and no fingerprint."""

FACTS = (
    "window_start",
    "window_end",
    "events",
    "late_events",
    "revision",
    "timing",
    "final",
    "last_arrival",
)
"""The columns of a window's row in addition to its keys and aggregates."""


class ValidatedDefinition(Protocol):
    """The properties of an asset that an expectation on its rows can use."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def aggregates(self) -> Mapping[str, object]: ...
    @property
    def window(self) -> Window: ...
    @property
    def by_window(self) -> list[str]: ...


class Evidence(Protocol):
    """The data that windowed expectations compare rows with."""

    @property
    def transform(self) -> ValidatedDefinition: ...
    @property
    def replaces_rows(self) -> bool:
        """True if the commit replaces all published rows of its windows."""
        ...

    @property
    def unvalidated_rows(self) -> DataFrame:
        """The rows to validate, without the columns that other expectations have joined to them."""
        ...

    @property
    def recounted_events(self) -> DataFrame:
        """The number of events of every window that the commit can change.

        The events are counted again from the log. The columns are the window, the keys and
        `events`.
        """
        ...

    def published_rows(self, back: int = 0) -> DataFrame:
        """Return the published rows of windows that the commit can change.

        Args:
            back: also return the rows of windows that start up to this many microseconds before
                one of these windows.
        """
        ...

    def quarantined_rows(self, back: int = 0) -> DataFrame:
        """Return the quarantined rows of the same windows as `published_rows`."""
        ...

    def same_window(self, left_alias: str, right_alias: str) -> Column:
        """Return the condition that rows of two DataFrame aliases have equal window and keys.

        Null keys are equal.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A condition on rows. Created by the functions of `tidemark.expect`.

    Args:
        name: the expectation as code: `between(mean_delay, -60, 600)`.
        expected: the condition in a few words.
        columns: the columns of the rows that the expectation reads.
        level: `error` or `warning`.
        description: the expectation's purpose, shown with the check.
        notes: further information, as Markdown.
        meta: further metadata, as JSON values.
    """

    name: str
    expected: str
    columns: tuple[str, ...] = ()
    level: str = ERROR
    description: str = field(default="", metadata=_FOR_PEOPLE)
    notes: str = field(default="", metadata=_FOR_PEOPLE)
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata=_FOR_PEOPLE)

    def __post_init__(self) -> None:
        if self.level not in (ERROR, WARNING):
            raise DefinitionError(
                f"Expectation {self.name}: its level must be 'error' or 'warning' (got "
                f"'{self.level}')."
            )

    def __str__(self) -> str:
        return self.name

    def check_definition(self, transform: ValidatedDefinition) -> None:
        """Refuse a transform whose rows the expectation can't validate.

        Raises:
            DefinitionError: the expectation reads a column that the rows don't have.
        """
        available = transform.keys + tuple(transform.aggregates) + FACTS
        for column in self.columns:
            if column not in available:
                raise DefinitionError(
                    f"Asset '{transform.name}': expectation {self.name} reads the column "
                    f"'{column}', which its rows don't have; they have: {', '.join(available)}."
                )


class Validation(NamedTuple):
    """The result of validating rows, as columns.

    Args:
        rows: the rows, with the columns that `fails` and `observed` need.
        fails: BOOLEAN, true if the row fails; null if there is nothing to compare the row with.
        observed: the observed value, as text.
    """

    rows: DataFrame
    fails: Column
    observed: Column


@dataclass(frozen=True, kw_only=True)
class Windowed(Expectation):
    """An expectation on windows, which Tidemark validates without Great Expectations.

    Args:
        validate: takes rows and the evidence, and returns the validation of each row. The rows have
            their window, keys, `FACTS`, `commit_number` and `columns`. None if no row can fail.
        absent: takes the same arguments, and returns the failures of windows without a row, for
            which nothing can be quarantined. Columns: `window_start`, the keys, and `OBSERVED`.
            None if a window without a row is not a failure.
        supports: raises a DefinitionError for a transform whose windows can't be validated.
        confirmed: true if a failure indicates a fault in Tidemark itself. Such a failure is checked
            a second time before rows are quarantined.
        slack: true if `validate` needs the column `SLACK` of the rows.
    """

    validate: Callable[[DataFrame, Evidence], Validation] | None = None
    absent: Callable[[DataFrame, Evidence], DataFrame] | None = None
    supports: Callable[[ValidatedDefinition], None] | None = None
    confirmed: bool = False
    slack: bool = False

    def check_definition(self, transform: ValidatedDefinition) -> None:
        super().check_definition(transform)
        if self.supports is not None:
            self.supports(transform)
