"""Record the results of comparisons (`parity`), for readers who did not see the command's output.

The table `parities` has a row for each comparison that was requested on the command line. The rows
are numbered from 0 without gaps, in the order of their commits. A process that reports new
comparisons elsewhere therefore needs to remember only the last reported number.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidemark.base.errors import ConflictError
from tidemark.base.instants import parse_instant
from tidemark.define import tables
from tidemark.store.commits.conditions import Equals
from tidemark.store.committers.values import Merge
from tidemark.store.epoch import Epoch
from tidemark.store.rows import INSTANT
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import Difference, ParityReport

TABLE = tables.PARITIES
_MAX_DIFFERENCES = 20
"""Maximum number of differences that a row lists; its counts include all differences."""

_APP = "parities"
_MAX_ATTEMPTS = 20
_DIFFERENCE = ("kind", "window_start", "keys", "column", "published", "recomputed")
_COUNT = pa.struct([("name", pa.string()), ("count", pa.int64())])
_SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "asset": pa.string(),
        **dict.fromkeys(("window_from", "window_to"), INSTANT),
        **dict.fromkeys(("as_of", "windows", "lost", "total", "quarantined"), pa.int64()),
        **dict.fromkeys(("kinds", "quarantined_by"), pa.list_(_COUNT)),
        "differences": pa.list_(pa.struct([(name, pa.string()) for name in _DIFFERENCE])),
        "at": INSTANT,
    }
)


@dataclass(frozen=True)
class Comparison:
    """A parity report, and the windows that it compared, as the table `parities` records them.

    Args:
        number: the number of the comparison, from 0, without gaps.
        start, end: the range of the compared window starts, in microseconds; None means no bound.
        report: the result, which lists only the first differences.
    """

    number: int
    start: int | None
    end: int | None
    report: ParityReport

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Comparison":
        """Return the comparison that a row of the table contains.

        Args:
            row: the row as Arrow converts it to Python.
        """
        plain: dict[str, Any] = {field.name: row[field.name] for field in fields(ParityReport)}
        plain["kinds"] = _from_counts(row["kinds"])
        plain["quarantined_by"] = _from_counts(row["quarantined_by"])
        differences: list[Difference] = []
        for difference in row["differences"]:
            keys = json.loads(difference["keys"])
            differences.append(Difference(**difference | {"keys": keys}))
        plain["differences"] = differences
        return cls(
            number=row["number"],
            start=_to_micros(row["window_from"]),
            end=_to_micros(row["window_to"]),
            report=ParityReport(**plain),
        )


def record_comparison(
    warehouse: Warehouse,
    report: ParityReport,
    start: int | None = None,
    end: int | None = None,
    *,
    epoch: Epoch | None = None,
) -> int:
    """Record a comparison of the windows that start in [start, end), and return its number.

    Args:
        start, end: instants in microseconds; None means no bound.
        epoch: the asset's epoch before the comparison; None if no erasure can run in parallel.

    Raises:
        ErasedMeanwhileError: events were erased since. The comparison may show their values.
        ConflictError: other processes recorded comparisons at the same time, in every attempt.
    """
    warehouse.ensure_table(
        TABLE, _SCHEMA.empty_table(), "Every comparison requested on the command line"
    )
    differences: list[dict[str, Any]] = []
    for difference in report.differences[:_MAX_DIFFERENCES]:
        keys = json.dumps(difference.keys, default=str)
        differences.append(asdict(difference) | {"keys": keys})
    row = asdict(report)
    row |= {
        "window_from": start,
        "window_to": end,
        "kinds": _to_counts(report.kinds),
        "quarantined_by": _to_counts(report.quarantined_by),
        "differences": differences,
        "at": time.time_ns() // 1000,
    }
    for _ in range(_MAX_ATTEMPTS):
        number = warehouse.transaction_version(TABLE, _APP) + 1
        rows = pa.Table.from_pylist([row | {"number": number}], schema=_SCHEMA)
        if warehouse.append_rows(rows, TABLE, _APP, number, epoch=epoch) is not None:
            return number
    raise ConflictError(
        f"The comparison of '{report.asset}' could not be recorded: gave up after {_MAX_ATTEMPTS} "
        "commit conflicts with other comparisons. Try again."
    )


def delete_differences(warehouse: Warehouse, asset: str) -> None:
    """Delete the listed differences from an asset's recorded comparisons, but keep the counts."""
    if not warehouse.has_table(TABLE):
        return
    rows = warehouse.load_rows(TABLE, Equals("asset", asset))
    has_differences = [bool(listed) for listed in rows["differences"].to_pylist()]
    with_differences = rows.filter(pa.array(has_differences, pa.bool_()))
    if not with_differences.num_rows:
        return
    index = with_differences.column_names.index("differences")
    no_differences = pa.array([[]] * with_differences.num_rows, _SCHEMA.field("differences").type)
    cleared = with_differences.set_column(index, "differences", no_differences)
    clear_differences = Merge(on=("number",), insert=None, only={"differences": "s.differences"})
    warehouse.merge_rows(cleared, TABLE, clear_differences)


def _to_micros(value: datetime | None) -> int | None:
    if value is None:
        return None
    return parse_instant(value)


def _from_counts(counts: list[dict[str, Any]]) -> dict[str, int]:
    return {entry["name"]: entry["count"] for entry in counts}


def _to_counts(counts: dict[str, int]) -> list[dict[str, object]]:
    return [{"name": name, "count": count} for name, count in counts.items()]
