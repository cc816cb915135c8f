"""Describe expectations as quality rules of the Open Data Contract Standard (ODCS).

| expectation | rule |
| --- | --- |
| `not_null`, `one_of` | a metric of the standard: `nullValues`, `invalidValues` |
| other expectations of Great Expectations | a custom rule of the engine `greatExpectations` |
| an expectation on windows | a custom rule of the engine `tidemark` |

A rule about a single column belongs to the column, every other rule to the table.
"""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from tidemark.define.expectations.expectation import WARNING, Expectation
from tidemark.define.expectations.general import General

QualityRule = dict[str, Any]

_NOT_NULL = "ExpectColumnValuesToNotBeNull"
_IN_SET = "ExpectColumnValuesToBeInSet"
_IMPACT = {
    True: "Rows that fail are published, and marked in the column quality.",
    False: "Rows that fail are quarantined, and not published.",
}
"""The consequence of a failure, by whether its level is a warning."""


def describe_rule(expectation: Expectation) -> QualityRule:
    """Return the quality rule of an expectation."""
    return {
        "name": expectation.name,
        "description": _describe_purpose(expectation),
        **_describe_implementation(expectation),
        "severity": expectation.level,
        "businessImpact": _IMPACT[expectation.level == WARNING],
    }


def column_of(expectation: Expectation) -> str | None:
    """Return the column to which the rule belongs; None if it belongs to the table."""
    if isinstance(expectation, General) and len(expectation.columns) == 1:
        return expectation.columns[0]
    return None


def unique_rows_rule(columns: list[str]) -> QualityRule:
    """Return the rule that a table has one row for each combination of values of some columns."""
    return {
        "name": "one row per window and keys",
        "type": "library",
        "metric": "duplicateValues",
        "arguments": {"properties": columns},
        "mustBe": 0,
        "dimension": "uniqueness",
        "severity": "error",
    }


def _describe_purpose(expectation: Expectation) -> str:
    expected = f"Expects {expectation.expected}."
    if expectation.description:
        return f"{expectation.description} {expected}"
    return expected


def _describe_implementation(expectation: Expectation) -> QualityRule:
    """Return the part of a rule that a program evaluates."""
    if not isinstance(expectation, General):
        return {"type": "custom", "engine": "tidemark", "implementation": expectation.name}
    kind = expectation.kind
    class_name = kind if isinstance(kind, str) else kind.__name__
    arguments = {name: _as_plain(value) for name, value in expectation.arguments.items()}
    if class_name == _NOT_NULL and set(arguments) == {"column"}:
        return {
            "type": "library",
            "metric": "nullValues",
            "mustBe": 0,
            "dimension": "completeness",
        }
    if class_name == _IN_SET and set(arguments) == {"column", "value_set"}:
        return {
            "type": "library",
            "metric": "invalidValues",
            "arguments": {"validValues": arguments["value_set"]},
            "mustBe": 0,
            "dimension": "conformity",
        }
    return {
        "type": "custom",
        "engine": "greatExpectations",
        "implementation": {"type": _snake_case(class_name), "kwargs": arguments},
    }


def _snake_case(class_name: str) -> str:
    """Return the name of a class as Great Expectations writes it in its own files."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name).lower()


def _as_plain(value: object) -> object:
    """Return an argument as a value that YAML has on any platform."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_as_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _as_plain(item) for name, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
