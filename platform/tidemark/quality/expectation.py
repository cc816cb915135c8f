"""An expectation: what the rows that a run is about to publish must be like.

It is declared with the transform and judged in every run, before anything is published. Where it
fails, its level decides: at `error` the rows that fail are withheld in quarantine, and all others
are published; at `warning` they are published, marked, and the failure is on record.

| expectation | looks at | module |
| --- | --- | --- |
| general | the values of a row, or of all rows of a run together (Great Expectations) | `general` |
| windowed | a window against the log, its earlier revision, its peers, its lateness | `windowed` |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame

from tidemark.errors import DefinitionError

if TYPE_CHECKING:
    from tidemark.quality.batch import Batch
    from tidemark.transform import WindowedTransform

ERROR, WARNING = "error", "warning"

FACTS = (
    *("window_start", "window_end", "events", "late_events", "revision", "timing", "final"),
    "last_arrival",
)
"""The columns of a window's row beside its keys and aggregates."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What is expected of rows. Made by the functions of `tidemark.quality`.

    Args:
        name: as it is written: `between(mean_delay, -60, 600)`.
        expected: what is asked for, in a few words.
        columns: the columns of the rows that it looks at.
        level: `error` or `warning`.
    """

    name: str
    expected: str
    columns: tuple[str, ...] = ()
    level: str = ERROR

    def __post_init__(self) -> None:
        if self.level not in (ERROR, WARNING):
            raise DefinitionError(
                f"Expectation {self.name}: its level is 'error' or 'warning', not '{self.level}'."
            )

    def __str__(self) -> str:
        return self.name

    def check(self, transform: "WindowedTransform") -> None:
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
        judge: from rows and where they come from, the verdict on each.
        absent: from the same, what fails without having a row, of which nothing can be withheld:
            `window_start`, the keys, and `observed`.
        supports: refuses a transform whose windows it can't judge, as `check` does.
    """

    judge: Callable[[DataFrame, "Batch"], Verdict] | None = None
    absent: Callable[[DataFrame, "Batch"], DataFrame] | None = None
    supports: Callable[["WindowedTransform"], None] | None = None

    def check(self, transform: "WindowedTransform") -> None:
        super().check(transform)
        if self.supports is not None:
            self.supports(transform)
