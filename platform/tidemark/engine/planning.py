"""How the engine goes about a session's queries, by how many rows there are.

Plans that adapt themselves and code that is compiled for each query pay for themselves with many
rows; of few, both take longer than the query.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from pyspark.sql import SparkSession

from tidemark.engine.requests import Settings, changed, settings
from tidemark.engine.varying import TOUCHED, compiled_once

_PLAIN = {
    # Adapting a plan and moving rows about take longer than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
_INTERPRETED = {
    # So does compiling it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_FEW_ROWS = 5_000
"""Rows up to which to interpret a plan takes no longer than to write its code."""

_SOME_ROWS = 2_000_000
"""Rows up to which there is nothing to be gained by adapting a plan to them."""


class Planning(Enum):
    """How queries are planned."""

    FEW = "interpreted"
    SOME = "in two pieces"
    MANY = "adapted"

    @classmethod
    def of(cls, few: bool) -> "Planning":
        """For rows of which it is told whether they are few."""
        return cls.FEW if few else cls.MANY

    @classmethod
    def again(cls, rows: int) -> "Planning":
        """For a query that is asked again and again, of so many rows each time: what is compiled
        for the first is there for the others."""
        if rows <= _FEW_ROWS:
            return cls.FEW
        return cls.SOME if rows <= _SOME_ROWS else cls.MANY


class Planner:
    """How a session's queries are planned now: as the session has it itself, to begin with."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._now = Planning.MANY
        # What the session has for the settings that change, before they are changed.
        self._own: Settings | None = None

    @contextmanager
    def planning(self, planning: Planning) -> Iterator[None]:
        """Plan queries so as long as the block lasts."""
        before = self._now
        if planning == before:
            yield
            return
        self._now = planning
        try:
            if self._own is None:
                self._own = settings(self._spark, [*_PLAIN, *_INTERPRETED, *TOUCHED])
            own = self._own
            with changed(self._spark, _planned(before, own), _planned(planning, own)):
                yield
        finally:
            self._now = before


def _planned(planning: Planning, own: Settings) -> Settings:
    """What a session has while queries are planned so, instead of its own."""
    if planning is Planning.FEW:
        return {**own, **_PLAIN, **_INTERPRETED}
    if planning is Planning.SOME:
        return {**own, **_PLAIN, **compiled_once(own), "spark.sql.shuffle.partitions": "2"}
    return own
