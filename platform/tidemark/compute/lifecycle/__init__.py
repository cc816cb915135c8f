"""Lifecycles: how windows are created, fire, and change.

| windows | lifecycle |
| --- | --- |
| with fixed bounds, which depend on time alone | `aligned`, which uses slots |
| sessions, which grow while a key keeps receiving events | `session`, which merges fragments |

Both have the same functions, from DataFrame to DataFrame; `lifecycle` chooses the one for a
transform's windows. Functions that only sessions need are called by `run/compute`.
"""

from typing import Protocol

from pyspark.sql import Column, DataFrame, Observation

from tidemark.compute.lifecycle import aligned, session
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.store.event_log.log import Log


class Lifecycle(Protocol):
    def aggregate_events(
        self,
        events: DataFrame,
        transform: Definition,
        log: Log,
        columns: list[Column],
        before: DataFrame | None = None,
    ) -> DataFrame:
        """Return classified events, aggregated to the partials that the state stores.

        Args:
            before: the partials of earlier runs, which count triggers need.
        """
        ...

    def finish_windows(
        self,
        stored: DataFrame,
        transform: Definition,
        log: Log,
        at: AsOf,
        *others: Column,
        all_fire_once: bool = False,
    ) -> DataFrame:
        """Return the current rows of the windows that have fired.

        Args:
            others: further aggregate expressions over the admitted partials.
            all_fire_once: result of the method `all_fire_once` for these partials.
        """
        ...

    def compute_changes(
        self,
        stored: DataFrame,
        transform: Definition,
        log: Log,
        at: AsOf,
        then: AsOf,
        *,
        opened: Observation | None = None,
        all_fire_once: bool = False,
    ) -> DataFrame:
        """Return the rows that changed between `then` and `at`; `IS_DELETED` marks deleted rows.

        Args:
            opened: observation that receives `open_from` if windows merge: the start of the first
                window that later arrivals can still change.
            all_fire_once: result of the method `all_fire_once` for these partials.
        """
        ...

    def list_firings(
        self, stored: DataFrame, transform: Definition, log: Log, at: AsOf
    ) -> DataFrame:
        """Return every firing of every window up to `at`, for the pane table.

        Columns:

        - the window and keys; `pane`, `PHASE`, `FIRED`
        - `_upto`: all partials in the firing; `_fresh`: those that are new in it
        - `_replaces`: the rows that it replaces, each with its window and its partials as `_upto`

        Columns that the accumulation does not need may be empty.
        """
        ...

    def repartition_for_merge(self, stored: DataFrame, transform: Definition) -> DataFrame:
        """Return partials, repartitioned if they are so many that this is cheaper.

        Partials that merge are then in one partition, so that no later step shuffles rows.
        """
        ...

    def all_fire_once(self, stored: DataFrame, transform: Definition) -> bool:
        """Return whether each window is known to fire just once, completely, at its end.

        False also means unknown. Only sessions without early firings query the engine for it.
        """
        ...


def lifecycle(transform: Definition) -> Lifecycle:
    return session if transform.window.merges else aligned
