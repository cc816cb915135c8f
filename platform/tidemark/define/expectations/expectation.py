"""An expectation: what the rows that a run is about to publish must be like.

It is declared with the transform and judged in every run, before anything is published. Where it
fails, its level decides: at `error` the rows that fail are withheld in quarantine, and all others
are published; at `warning` they are published, marked, and the failure is on record.

| expectation | looks at | module |
| --- | --- | --- |
| general | the values of a row, or of all rows of a run together (Great Expectations) | `general` |
| windowed | a window against the log, its earlier revision, its peers, its lateness | `windowed` |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame

from tidemark.base.errors import DefinitionError
from tidemark.define.windows import Window

ERROR = "error"
"""The level of an expectation whose rows are withheld where they fail."""

WARNING = "warning"
"""The level of one that only says so."""

FOR_PEOPLE = {"judges": False}
"""Of a field that people read, by which nothing is judged: no part of a fingerprint."""

FACTS = (
    *("window_start", "window_end", "events", "late_events", "revision", "timing", "final"),
    "last_arrival",
)
"""The columns of a window's row beside its keys and aggregates."""


class Judged(Protocol):
    """What an expectation knows of the asset whose rows it judges."""

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
    """What windowed expectations judge rows by, beside the rows themselves."""

    @property
    def transform(self) -> Judged: ...
    @property
    def replaces(self) -> bool:
        """Whether the rows take the place of all that was published of their windows."""
        ...

    @property
    def judged(self) -> DataFrame:
        """The rows, without what the judging of other expectations has joined to them."""
        ...

    @property
    def recounted(self) -> DataFrame:
        """The events of every window that the commit can change, counted anew from the log: the
        window, the keys and `events`."""
        ...

    def published(self, back: int = 0) -> DataFrame:
        """The published rows of windows that the commit can change, and of windows that started
        up to `back` microseconds earlier."""
        ...

    def withheld(self, back: int = 0) -> DataFrame:
        """The rows in quarantine; otherwise as `published`."""
        ...

    def same_window(self, left: str, right: str) -> Column:
        """Whether two named sets of rows agree in window and keys; nulls agree too."""
        ...


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What is expected of rows. Made by the functions of `tidemark.quality`.

    Args:
        name: as it is written: `between(mean_delay, -60, 600)`.
        expected: what is asked for, in a few words.
        columns: the columns of the rows that it looks at.
        level: `error` or `warning`.
        description: what it is for, told with the check.
        notes: what else to know of it, as Markdown.
        meta: whatever else is to go with it, as JSON has it.
    """

    name: str
    expected: str
    columns: tuple[str, ...] = ()
    level: str = ERROR
    description: str = field(default="", metadata=FOR_PEOPLE)
    notes: str = field(default="", metadata=FOR_PEOPLE)
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata=FOR_PEOPLE)

    def __post_init__(self) -> None:
        if self.level not in (ERROR, WARNING):
            raise DefinitionError(
                f"Expectation {self.name}: its level is 'error' or 'warning', not '{self.level}'."
            )

    def __str__(self) -> str:
        return self.name

    def check(self, transform: Judged) -> None:
        """Refuse a transform whose rows it can't judge.

        Raises:
            DefinitionError: it looks at a column that the rows don't have.
        """
        there = (*transform.keys, *transform.aggregates, *FACTS)
        for column in self.columns:
            if column not in there:
                raise DefinitionError(
                    f"Asset '{transform.name}': expectation {self.name} looks at the column "
                    f"'{column}', which its rows don't have; they have {', '.join(there)}."
                )


class Verdict(NamedTuple):
    """How rows are judged, as columns.

    Args:
        rows: the rows, with what `fails` and `observed` need.
        fails: BOOLEAN; null where there is nothing to judge by.
        observed: what was found, as text.
    """

    rows: DataFrame
    fails: Column
    observed: Column


@dataclass(frozen=True, kw_only=True)
class Windowed(Expectation):
    """An expectation that the platform judges, by what it knows of windows.

    Args:
        judge: from rows and where they come from, the verdict on each. The rows have their window,
            keys, `FACTS`, `seq` and `columns`.
        absent: from the same, what fails without having a row, of which nothing can be withheld:
            `window_start`, the keys, and `observed`.
        supports: refuses a transform whose windows it can't judge, as `check` does.
        confirmed: whether a failure is a fault of Tidemark itself, which is looked at once more
            before anything is withheld for it.
        slack: whether it needs the rows' column `SLACK`.
    """

    judge: Callable[[DataFrame, Evidence], Verdict] | None = None
    absent: Callable[[DataFrame, Evidence], DataFrame] | None = None
    supports: Callable[[Judged], None] | None = None
    confirmed: bool = False
    slack: bool = False

    def check(self, transform: Judged) -> None:
        super().check(transform)
        if self.supports is not None:
            self.supports(transform)
