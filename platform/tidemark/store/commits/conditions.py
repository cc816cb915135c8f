"""Define conditions on rows that allow data skipping: `InRanges` and `Equals`.

The transaction log of a Delta table holds the minimum and the maximum of each file's columns. Each
condition therefore has three forms: SQL for the engine, an expression for Arrow, and a test of a
file's minimum and maximum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.base.instants import EPOCH
from tidemark.engine.queries.plan_literals import uncompiled_literal_sql
from tidemark.store.commits.ranges import Ranges

_MOST = 2**63 - 1
"""A number greater than any number or instant in a table."""


def text_field(name: str) -> pc.Expression:
    """Return a text column as an Arrow expression that can be compared.

    The merge of delta-rs writes texts with the type string view, which Arrow can't compare.
    """
    return pc.field(name).cast(pa.string())


@dataclass(frozen=True)
class InRanges:
    """The condition that a value is in one of the ranges [start, end); always true without ranges.

    Args:
        column: a column of whole numbers or, if `instants`, of timestamps; null is in no range.
        ranges: whole numbers or, if `instants`, microseconds.
    """

    column: str
    ranges: Ranges
    instants: bool = True

    def to_sql(self) -> str:
        name = f"`{self.column}`"
        conditions = list[str]()
        for start, end in self.ranges:
            is_after_start = f"{name} >= {self._sql_literal(start)}"
            is_before_end = f"{name} < {self._sql_literal(end)}"
            conditions.append(f"({is_after_start} AND {is_before_end})")
        if conditions:
            return f"({' OR '.join(conditions)})"
        return "TRUE"

    def to_expression(self) -> pc.Expression:
        field = pc.field(self.column)
        conditions = list[pc.Expression]()
        for start, end in self.ranges:
            is_after_start = field >= self._arrow_scalar(start)
            is_before_end = field < self._arrow_scalar(end)
            conditions.append(is_after_start & is_before_end)
        if conditions:
            return reduce(or_, conditions)
        return pc.scalar(True)

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        """Return whether a file may contain rows that satisfy the condition.

        A file without statistics may contain any row.

        Args:
            file: the file's statistics (`committers.statistics.list_files`).
        """
        bounds = self._read_bounds(file)
        if bounds is None:
            return True
        low, high = bounds
        return any(low < end and start <= high for start, end in self.ranges)

    def holds_for_file(self, file: Mapping[str, Any]) -> bool:
        """Return whether a file's statistics prove that all of its rows satisfy the condition."""
        if not self.ranges:
            return True
        bounds = self._read_bounds(file)
        has_nulls = file.get(f"null_count.{self.column}") != 0
        if bounds is None or has_nulls:
            return False
        low, high = bounds
        return any(start <= low and high < end for start, end in self.ranges)

    def _read_bounds(self, file: Mapping[str, Any]) -> tuple[int, int] | None:
        """Return the column's minimum and maximum in a file.

        Return None if they are not known, or if there are no ranges to compare them with.
        """
        low = file.get(f"min.{self.column}")
        high = file.get(f"max.{self.column}")
        if not self.ranges or low is None or high is None:
            return None
        if isinstance(low, datetime):
            # Some writers truncate instants to milliseconds, so the true maximum may be larger.
            return _to_micros(low), _to_micros(high) + 999
        return low, high

    def _sql_literal(self, value: int) -> str:
        number = uncompiled_literal_sql(value)
        if self.instants:
            return f"timestamp_micros({number})"
        return number

    def _arrow_scalar(self, value: int) -> pa.Scalar:
        number = pa.scalar(value, pa.int64())
        if self.instants:
            return number.cast(pa.timestamp("us", "UTC"))
        return number


@dataclass(frozen=True)
class Equals:
    """The condition that a text column equals a text exactly.

    Args:
        column: a text column; null does not match.
    """

    column: str
    text: str

    def to_sql(self) -> str:
        escaped = self.text.replace("\\", "\\\\").replace("'", "\\'")
        return f"(`{self.column}` = '{escaped}')"

    def to_expression(self) -> pc.Expression:
        return text_field(self.column) == pc.scalar(self.text)

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        low = file.get(f"min.{self.column}")
        high = file.get(f"max.{self.column}")
        return low is None or high is None or low <= self.text <= high

    def holds_for_file(self, file: Mapping[str, Any]) -> bool:
        # Statistics of a long text cover only its prefix.
        return False


Condition = InRanges | Equals


def window_starts_in(ranges: Ranges) -> InRanges:
    return InRanges("window_start", ranges)


def number_in(column: str, start: int, end: int) -> InRanges:
    """Return the condition that a whole number is in [start, end)."""
    return InRanges(column, ((start, end),), instants=False)


def number_is(column: str, value: int) -> InRanges:
    return number_in(column, value, value + 1)


def at_least(column: str, value: int, *, instants: bool = False) -> InRanges:
    """Return the condition that a number, or an instant in microseconds, is at least a value."""
    return InRanges(column, ((value, _MOST),), instants)


def less_than(column: str, value: int) -> InRanges:
    return number_in(column, -_MOST, value)


def _to_micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)
