"""Lifecycles: how windows come to be, fire, and are seen to change.

| windows | lifecycle |
| --- | --- |
| at places that time alone tells | `aligned`: by slots |
| of a key's events that follow each other | `session`: by fragments, which merge |

Both answer the same questions, from DataFrame to DataFrame; which one a transform's windows have is
chosen here. What only sessions need, `run/sessions` asks of them.
"""

from typing import Protocol

from pyspark.sql import Column, DataFrame, Observation

from tidemark.compute.lifecycle import aligned, session
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.store.log import Log


class Lifecycle(Protocol):
    """What is asked of windows."""

    def partials(
        self,
        events: DataFrame,
        transform: Definition,
        log: Log,
        columns: list[Column],
        before: DataFrame | None = None,
    ) -> DataFrame:
        """Judged events, added up to what the state holds.

        Args:
            columns: what is added up.
            before: the partials of earlier runs, for triggers that count.
        """
        ...

    def finished(
        self,
        stored: DataFrame,
        transform: Definition,
        log: Log,
        at: AsOf,
        *others: Column,
        all_plain: bool = False,
    ) -> DataFrame:
        """The rows of the windows that have fired, as they stand.

        Args:
            others: further aggregate expressions over the partials that count.
            all_plain: what `all_plain` has said of them.
        """
        ...

    def changes(
        self,
        stored: DataFrame,
        transform: Definition,
        log: Log,
        at: AsOf,
        then: AsOf,
        *,
        opened: Observation | None = None,
        all_plain: bool = False,
    ) -> DataFrame:
        """The rows that changed between `then` and `at`, and with `gone` those that left.

        Args:
            opened: where windows merge, is to observe `open_from`: where the first one starts that
                later arrivals can still change.
            all_plain: what `all_plain` has said of them.
        """
        ...

    def firings(self, stored: DataFrame, transform: Definition, log: Log, at: AsOf) -> DataFrame:
        """Every firing of every window up to `at`, as panes need them.

        Columns: the window and keys; `pane`, `phase`, `fired`; `_upto` and `_fresh`, the partials
        in it and those that are new in it; `_replaces`, the rows whose place it takes, each with
        its window and its partials as `_upto`. What the accumulation does not ask for may be empty.
        """
        ...

    def together(self, stored: DataFrame, transform: Definition) -> DataFrame:
        """Many partials, with those that merge in one place, where it is worth while to say so
        first: nothing else moves them then."""
        ...

    def all_plain(self, stored: DataFrame, transform: Definition) -> bool:
        """Whether it is known that each window fires just once, as a whole, at its end, where it is
        worth while to ask the engine that first."""
        ...


def lifecycle(transform: Definition) -> Lifecycle:
    """The lifecycle of a transform's windows."""
    return session if transform.window.merges else aligned
