"""Compare values of a result with expected ones, and render them."""

import math
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY, as_datetime, format_instant, parse_instant
from tidemark_streaming.scenario.read.columns import NUMERAL, Written

_TOLERANCE = 1e-9
"""Relative difference allowed between doubles, whose sums depend on the order of addition."""

_BRIEF = 22


def is_equal(expected: object, actual: object, slack: float = 0.0) -> bool:
    """Return whether a value of a result equals the expected one.

    Times are compared as instants, decimals by value, and lists item by item. Doubles may differ by
    the relative `_TOLERANCE` or the absolute `slack`.
    """
    if expected is None or actual is None or isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, Written):
        return _same_as_written(expected, actual, slack)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(is_equal, expected, actual))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(
            is_equal(v, actual[k]) for k, v in expected.items()
        )
    if isinstance(expected, date):
        return expected == _parse_moment(actual, expected=expected)
    if isinstance(expected, int | float | Decimal):
        return _is_close(expected, actual, slack)
    return expected == actual


def to_display(value: object) -> str:
    """Return a value in a readable form."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, datetime) and value.tzinfo:
        return format_instant(parse_instant(value)) or ""
    if isinstance(value, list):
        return f"[{', '.join(map(to_display, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {to_display(v)}' for k, v in value.items())}}}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def _parse_moment(actual: object, expected: date) -> date | None:
    if not isinstance(actual, str):
        return None
    try:
        if not isinstance(expected, datetime):
            return date.fromisoformat(actual)
        if expected.tzinfo is None:
            return datetime.fromisoformat(actual)
        return as_datetime(INFINITY if actual == "+infinity" else parse_instant(actual))
    except (ValueError, DefinitionError):
        return None


def _same_as_written(expected: str, actual: object, slack: float) -> bool:
    """Return whether a text equals a value as text, as a number or as an instant."""
    if isinstance(actual, int | float | str) and NUMERAL.fullmatch(expected):
        return expected == actual or _is_close(Decimal(expected), actual, slack)
    if not isinstance(actual, str) or expected == actual:
        return expected == actual
    try:
        return parse_instant(expected) == (
            INFINITY if actual == "+infinity" else parse_instant(actual)
        )
    except DefinitionError:
        return False


def _is_close(expected: float | Decimal, actual: object, slack: float) -> bool:
    try:
        value = Decimal(actual) if isinstance(actual, str) else actual
    except InvalidOperation:
        return False
    if not isinstance(value, int | float | Decimal):
        return False
    if isinstance(expected, float) or isinstance(value, float):
        x = float(expected)
        y = float(value)
        near = math.isclose(x, y, rel_tol=_TOLERANCE, abs_tol=slack)
        return near or (math.isnan(x) and math.isnan(y))
    return expected == value


def to_short_text(value: object) -> str:
    """Return a value in a short form; null is a tilde."""
    text = "~" if value is None else to_display(value)
    return truncate("".join(c if c.isprintable() else "·" for c in text), _BRIEF)


def truncate(text: str, length: int) -> str:
    """Return a text, truncated if it is longer than `length`."""
    if len(text) <= length:
        return text
    return f"{text[: length - 1]}…"


def to_plain(value: object, ddl: str) -> object:
    """Return a value of a scenario's row in the form of a result: times and decimals as text."""
    if isinstance(value, int) and ddl == "timestamp":
        return format_instant(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):
        return str(value)
    return value
