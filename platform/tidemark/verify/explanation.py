"""Determine whether the data explain that a window is quarantined.

A quarantined row records the expectations that it failed. `parity` verifies whether its values were
computed correctly. This module validates its expectations again in plain Python, from these values
alone:

| failed expectation | explained |
| --- | --- |
| `matches_log()`, `unique_key()` | never: they check Tidemark itself |
| `between`, `not_null`, `one_of`, `column_greater` | if the row's values do fail it |
| any other, for which one row is not enough | always: the gate's result is accepted |

A window that fails several expectations is explained if each of them is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import ERROR
from tidemark.define.expectations.general import General
from tidemark.verify.integrity_checks import INTEGRITY_CHECKS

Row = Mapping[str, Any]


def find_unexplained(transform: Definition, withheld: Iterable[Row]) -> list[tuple[Row, str]]:
    """Return the quarantined rows that the data do not explain.

    Each comes with the name of an expectation whose failure is unexplained.

    Args:
        withheld: rows of the asset's quarantine.
    """
    declared = {e.name: e for e in transform.expectations}
    found: list[tuple[Row, str]] = []
    for row in withheld:
        names = [f["expectation"] for f in row["failed"] if f["level"] == ERROR]
        wrong = next((n for n in names if not _explains(declared.get(n), n, row)), None)
        if wrong is not None:
            found.append((row, wrong))
    return found


def _explains(expectation: object, name: str, row: Row) -> bool:
    if name in INTEGRITY_CHECKS:
        return False
    if not isinstance(expectation, General) or not isinstance(expectation.kind, str):
        return True
    fails = _CHECKS.get(expectation.kind)
    given = expectation.arguments
    # An argument that is unknown here may change the meaning.
    if fails is None or not given.keys() <= _ARGUMENTS:
        return True
    try:
        return fails(row, given)
    except TypeError:
        # The bound needs a conversion, such as an instant given as text.
        return True


def _is_outside(row: Row, given: Row) -> bool:
    value, least, most = row[given["column"]], given.get("min_value"), given.get("max_value")
    if value is None:
        return False
    # NaN is outside all bounds.
    return not ((least is None or value >= least) and (most is None or value <= most))


def _is_missing(row: Row, given: Row) -> bool:
    return row[given["column"]] is None


def _is_unknown(row: Row, given: Row) -> bool:
    value = row[given["column"]]
    return value is not None and value not in given["value_set"]


def _is_not_greater(row: Row, given: Row) -> bool:
    value, than = row[given["column_A"]], row[given["column_B"]]
    return value is not None and than is not None and not value > than


_ARGUMENTS = {
    "column",
    "min_value",
    "max_value",
    "value_set",
    "column_A",
    "column_B",
    "ignore_row_if",
}
_CHECKS: dict[str, Callable[[Row, Row], bool]] = {
    "ExpectColumnValuesToBeBetween": _is_outside,
    "ExpectColumnValuesToNotBeNull": _is_missing,
    "ExpectColumnValuesToBeInSet": _is_unknown,
    "ExpectColumnPairValuesAToBeGreaterThanB": _is_not_greater,
}
