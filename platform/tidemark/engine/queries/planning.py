"""Choose the planner settings of a session's queries by their number of rows.

Adaptive execution and code generation pay off for many rows. For few rows, each of the two takes
longer than the query itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import chain

from pyspark.sql import SparkSession

from tidemark.base import thresholds
from tidemark.engine.queries.requests import Settings, override_settings, read_settings
from tidemark.engine.queries.rules import with_excluded_rule

_PLAIN = {
    # For few rows, adaptive execution and shuffles take longer than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
_INTERPRETED = {
    # For few rows, code generation takes longer than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_FOLDING = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
_ELIMINATION = "spark.sql.subexpressionElimination.enabled"
CHANGED_SETTINGS = (_EXCLUDED, _ELIMINATION)
"""The settings that `share_compiled_code` changes."""


class Planning(Enum):
    """The planner settings for few, some or many rows.

    - `FEW`: no adaptive execution, one shuffle partition, and plans are interpreted.
    - `SOME`: no adaptive execution, two shuffle partitions, but plans are compiled.
    - `MANY`: the session's own settings.
    """

    FEW = "interpreted"
    SOME = "in two pieces"
    MANY = "adapted"

    @classmethod
    def for_size(cls, few: bool) -> "Planning":
        """Return `FEW` if a query has few rows, otherwise `MANY`."""
        return cls.FEW if few else cls.MANY

    @classmethod
    def for_repeated_query(cls, rows: int) -> "Planning":
        """Return the settings for a query that runs again and again, with `rows` rows each time.

        The later executions reuse the code that was compiled for the first execution.
        """
        if rows <= thresholds.INTERPRETED_ROWS:
            return cls.FEW
        if rows <= thresholds.ADAPTIVE_ROWS:
            return cls.SOME
        return cls.MANY


class Planner:
    """The planner settings of a session; initially, the session's own settings (`MANY`)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._now = Planning.MANY
        # The session's own values of these settings, before the first change.
        self._own: Settings | None = None

    @contextmanager
    def use_planning(self, planning: Planning) -> Iterator[None]:
        """Use the given planner settings within the context."""
        before = self._now
        if planning == before:
            yield
            return
        self._now = planning
        try:
            if self._own is None:
                names = chain(_PLAIN, _INTERPRETED, CHANGED_SETTINGS)
                self._own = read_settings(self._spark, names)
            own_settings = self._own
            with override_settings(
                self._spark,
                _replacement_settings(before, own_settings),
                _replacement_settings(planning, own_settings),
            ):
                yield
        finally:
            self._now = before


def share_compiled_code(own_settings: Settings) -> Settings:
    """Return settings with which queries share compiled code if only their numbers differ.

    The numbers must be passed by `plan_literals`. Rules that the session already excludes stay
    excluded.

    Args:
        own_settings: the session's own values of these settings.
    """
    # Subexpression elimination depends on numbers that differ between queries.
    return {_EXCLUDED: with_excluded_rule(own_settings[_EXCLUDED], _FOLDING), _ELIMINATION: "false"}


def _replacement_settings(planning: Planning, own_settings: Settings) -> Settings:
    if planning is Planning.FEW:
        return {**own_settings, **_PLAIN, **_INTERPRETED}
    if planning is Planning.SOME:
        return {
            **own_settings,
            **_PLAIN,
            **share_compiled_code(own_settings),
            "spark.sql.shuffle.partitions": "2",
        }
    return own_settings
