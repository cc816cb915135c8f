"""Adapt expectations of Great Expectations to the rows of windows.

A transform's `expectations` may contain an object of any expectation class of Great Expectations.
The object's `severity` becomes the level: `critical` is `error`, `warning` and `info` are
`warning`. The functions of this module are short forms for some classes. An expectation on each row
(a column map) quarantines the rows that fail. An expectation on the rows as a whole, such as a mean
or a count, quarantines all rows of the run if it fails. The object's `description`, `notes` and
`meta` appear with its check.

Great Expectations takes seconds to import, so a definition only names the class that it needs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError
from tidemark.define.expectations.expectation import ERROR, WARNING, Expectation

_OWN = ("id", "meta", "notes", "result_format", "description", "catch_exceptions")
_OWN += ("rendered_content", "severity", "windows", "batch_id")


@dataclass(frozen=True, kw_only=True)
class General(Expectation):
    """An expectation that Great Expectations validates.

    Args:
        kind: its class in Great Expectations, or the name of this class.
        arguments: the arguments of the class.
    """

    kind: str | type
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arguments.get("condition_parser") == "spark":
            raise DefinitionError(
                f"Expectation {self.name}: its row_condition is written for Spark, but rows are "
                "validated in memory. Write it with "
                'great_expectations.expectations.row_conditions, for example Column("carrier") == '
                '"AA".'
            )


_MORE = ("description", "notes", "meta", "mostly", "row_condition", "condition_parser")
_MORE_OF = {
    "ExpectColumnValuesToBeBetween": ("strict_min", "strict_max"),
    "ExpectColumnPairValuesAToBeGreaterThanB": ("or_equal", "ignore_row_if"),
}
"""The further arguments that callers may pass: those for every class of Great Expectations
(`_MORE`), and those for single classes (`_MORE_OF`).
"""


_Bound = float | Decimal | str | date
"""A bound of values. A datetime is a date, too."""


@check_arguments
def between(
    column: str,
    min_value: _Bound | None = None,
    max_value: _Bound | None = None,
    *,
    level: str = ERROR,
    **more: object,
) -> General:
    """Expect each value to lie from `min_value` to `max_value`, both included; null is skipped.

    Example:
        between("mean_delay", -60, 600)
        between("flights", max_value=500, level="warning")

    Args:
        column: a column of the published rows.
        min_value: the smallest allowed value; unlimited by default.
        max_value: the greatest allowed value; unlimited by default.
        level: `error` quarantines rows that fail; `warning` publishes them.
        more: further arguments of the Great Expectations class, such as `description`.

    Raises:
        DefinitionError: neither bound is given, or no value is between the bounds.
    """
    kind = "ExpectColumnValuesToBeBetween"
    # A bound with a wrong name is not missing.
    _check_extra_arguments("between", kind, more)
    if min_value is None and max_value is None:
        raise DefinitionError(f"between({column}) has no bound: give `min_value` or `max_value`.")
    _check_bounds(f"between({column})", min_value, max_value)
    if max_value is None:
        name = f"min_value={min_value}"
        expected = f"at least {min_value}"
    elif min_value is None:
        name = f"max_value={max_value}"
        expected = f"at most {max_value}"
    else:
        name = f"{min_value}, {max_value}"
        expected = f"from {min_value} to {max_value}"
    return _short_form(
        f"between({column}, {name})",
        expected,
        kind,
        {"column": column, "min_value": min_value, "max_value": max_value},
        level,
        more,
    )


@check_arguments
def not_null(column: str, *, level: str = ERROR, **more: object) -> General:
    """Expect no value to be null.

    Example:
        not_null("origin")

    Args:
        column: a column of the published rows.
        level: `error` quarantines rows that fail; `warning` publishes them.
        more: further arguments of the Great Expectations class, such as `description`.
    """
    return _short_form(
        f"not_null({column})",
        "a value",
        "ExpectColumnValuesToNotBeNull",
        {"column": column},
        level,
        more,
    )


@check_arguments
def one_of(column: str, values: Sequence[object], *, level: str = ERROR, **more: object) -> General:
    """Expect each value to be one of the allowed values; null is skipped.

    Example:
        one_of("carrier", ["AA", "DL"])

    Args:
        column: a column of the published rows.
        values: the allowed values.
        level: `error` quarantines rows that fail; `warning` publishes them.
        more: further arguments of the Great Expectations class, such as `description`.
    """
    shown = ", ".join(map(str, values))
    return _short_form(
        f"one_of({column}, [{shown}])",
        f"one of {shown}",
        "ExpectColumnValuesToBeInSet",
        {"column": column, "value_set": list(values)},
        level,
        more,
    )


@check_arguments
def column_greater(column: str, than: str, *, level: str = ERROR, **more: object) -> General:
    """Expect a row's value in `column` to be greater than its value in the column `than`.

    Rows in which either value is null are skipped.

    Example:
        column_greater("most", "least")  # fails for a stuck sensor, which reports one value

    Args:
        column: a column of the published rows.
        than: the column to compare with.
        level: `error` quarantines rows that fail; `warning` publishes them.
        more: further arguments of the Great Expectations class, such as `description`.
    """
    return _short_form(
        f"column_greater({column}, {than})",
        f"{column} > {than}",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {
            "column_A": column,
            "column_B": than,
            "ignore_row_if": "either_value_is_missing",
        },
        level,
        more,
    )


def as_expectation(expectation: object) -> General:
    if not any(c.__module__.startswith("great_expectations.") for c in type(expectation).__mro__):
        raise DefinitionError(
            f"{expectation!r} is not an expectation: use a function of tidemark.expect, or an "
            "instance of a class of great_expectations.expectations."
        )
    library_expectation: Any = expectation
    arguments = {k: v for k, v in library_expectation.configuration.kwargs.items() if k not in _OWN}
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    level = WARNING
    if str(getattr(library_expectation.severity, "value", "")) == "critical":
        level = ERROR
    return General(
        name=f"{type(expectation).__name__}({shown})",
        expected=shown or type(expectation).__name__,
        columns=tuple(_find_columns(arguments)),
        level=level,
        description=library_expectation.description or "",
        notes=_join_notes(library_expectation.notes),
        meta=library_expectation.meta or {},
        kind=type(expectation),
        arguments=arguments,
    )


def _short_form(
    name: str,
    expected: str,
    kind: str,
    own_arguments: Mapping[str, Any],
    level: str,
    extra_arguments: Mapping[str, Any],
) -> General:
    """Return an expectation that a class of Great Expectations validates.

    Args:
        name: the expectation as code, such as `not_null(origin)`.
        expected: the condition in a few words, such as `a value`.
        kind: the name of the class.
        own_arguments: the arguments of that class that the calling function sets.
        extra_arguments: further arguments of that class, from the user.
    """
    _check_extra_arguments(name.partition("(")[0], kind, extra_arguments)
    library_arguments = dict[str, Any]()
    metadata = dict[str, Any]()
    for argument, value in {**own_arguments, **extra_arguments}.items():
        if argument in ("description", "notes", "meta"):
            metadata[argument] = value
        elif value is not None:
            library_arguments[argument] = value
    return General(
        name=name,
        expected=expected,
        columns=tuple(_find_columns(library_arguments)),
        level=level,
        kind=kind,
        arguments=library_arguments,
        **metadata,
    )


def _check_extra_arguments(function: str, kind: str, extra_arguments: Mapping[str, Any]) -> None:
    """Refuse further arguments that a class of Great Expectations does not have."""
    allowed = _MORE + _MORE_OF.get(kind, ())
    for argument in extra_arguments:
        if argument not in allowed:
            raise DefinitionError(
                f"{function} has no parameter '{argument}'. In addition to its own parameters it "
                f"accepts {', '.join(allowed)}."
            )


def _check_bounds(subject: str, minimum: object, maximum: object) -> None:
    """Refuse bounds without a value between them."""
    pair: Any = minimum, maximum
    if any(bound != bound for bound in pair):
        raise DefinitionError(
            f"{subject} has the bound NaN, and no value is above or below NaN: give a number."
        )
    try:
        is_empty = None not in pair and pair[0] > pair[1]
    except TypeError:
        raise DefinitionError(
            f"{subject}: its bounds must have one type (got {minimum!r} and {maximum!r})."
        ) from None
    if is_empty:
        raise DefinitionError(
            f"{subject}: no value is from {minimum} to {maximum}; swap the bounds."
        )


def _join_notes(notes: str | Sequence[str] | None) -> str:
    if isinstance(notes, str):
        return notes
    return "\n\n".join(notes or ())


def _find_columns(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if name in ("column", "column_A", "column_B"):
            yield value
        elif name == "column_list":
            yield from value
