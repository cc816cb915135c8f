"""Conditions on a table's rows that files can be passed over by: a column lies in some ranges, or
is a text.

Every file of a Delta table tells the least and the greatest value of its columns. A condition is
written three ways from the same values: for the engine, for Arrow, and for a table's list of files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.base.instants import EPOCH
from tidemark.engine.varying import varying_sql
from tidemark.store.ranges import Ranges


class Condition(Protocol):
    """What is asked of a row."""

    def sql(self) -> str:
        """For the engine."""
        ...

    def expression(self) -> pc.Expression:
        """For Arrow."""
        ...

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        """Whether a file, as `get_add_actions(flatten=True)` lists it, may have such rows.

        Without statistics it may hold anything.
        """
        ...

    def holds(self, file: Mapping[str, Any]) -> bool:
        """Whether all rows of a file are such, as far as its statistics tell."""
        ...


@dataclass(frozen=True)
class Within:
    """A column's value is in one of the ranges [start, end); no range is no bound.

    Args:
        column: of whole numbers or, where `instants`, of timestamps; null is in no range.
        ranges: numbers, or microseconds.
    """

    column: str
    ranges: Ranges
    instants: bool = True

    def sql(self) -> str:
        name = f"`{self.column}`"
        each = [
            f"({name} >= {self._literal(start)} AND {name} < {self._literal(end)})"
            for start, end in self.ranges
        ]
        return f"({' OR '.join(each)})" if each else "TRUE"

    def expression(self) -> pc.Expression:
        field = pc.field(self.column)
        each = [
            (field >= self._scalar(start)) & (field < self._scalar(end))
            for start, end in self.ranges
        ]
        return reduce(or_, each) if each else pc.scalar(True)

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        told = self._bounds(file)
        return told is None or any(told[0] < end and start <= told[1] for start, end in self.ranges)

    def holds(self, file: Mapping[str, Any]) -> bool:
        told, nulls = self._bounds(file), file.get(f"null_count.{self.column}")
        return not self.ranges or (
            told is not None
            and nulls == 0
            and any(start <= told[0] and told[1] < end for start, end in self.ranges)
        )

    def _bounds(self, file: Mapping[str, Any]) -> tuple[int, int] | None:
        """The least and the greatest that a file may have; None where it may have anything."""
        low, high = file.get(f"min.{self.column}"), file.get(f"max.{self.column}")
        if not self.ranges or low is None or high is None:
            return None
        if isinstance(low, datetime):
            # Some writers cut instants to milliseconds: the greatest may be a little more.
            return _micros(low), _micros(high) + 999
        return low, high

    def _literal(self, value: int) -> str:
        number = varying_sql(value)
        return f"timestamp_micros({number})" if self.instants else number

    def _scalar(self, value: int) -> pa.Scalar:
        number = pa.scalar(value, pa.int64())
        return number.cast(pa.timestamp("us", "UTC")) if self.instants else number


@dataclass(frozen=True)
class Is:
    """A column of text is this one.

    Args:
        column: null is no text.
        text: compared to the character.
    """

    column: str
    text: str

    def sql(self) -> str:
        escaped = self.text.replace("\\", "\\\\").replace("'", "\\'")
        return f"(`{self.column}` = '{escaped}')"

    def expression(self) -> pc.Expression:
        return pc.field(self.column) == pc.scalar(self.text)

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        low, high = file.get(f"min.{self.column}"), file.get(f"max.{self.column}")
        return low is None or high is None or low <= self.text <= high

    def holds(self, file: Mapping[str, Any]) -> bool:
        # Statistics of a long text are of its beginning alone.
        return False


def started(ranges: Ranges) -> Within:
    """Windows that start in one of the ranges."""
    return Within("window_start", ranges)


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)
