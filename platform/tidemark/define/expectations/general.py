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
    least: _Bound | None = None,
    most: _Bound | None = None,
    *,
    level: str = ERROR,
    **more: object,
) -> General:
    """Expect each value to lie from `least` to `most`, both included; null is skipped.

    Example:
        between("mean_delay", -60, 600)
        between("flights", most=500, level="warning")

    Args:
        column: a column of the published rows.
        least: the smallest allowed value; unlimited by default.
        most: the greatest allowed value; unlimited by default.
        level: `error` quarantines rows that fail; `warning` publishes them.
        more: further arguments of the Great Expectations class, such as `description`.

    Raises:
        DefinitionError: neither bound is given, or no value is between the bounds.
    """
    if least is None and most is None:
        raise DefinitionError(f"between({column}) has no bound: give `least` or `most`.")
    _check_bounds(f"between({column})", least, most)
    if most is None:
        name, expected = f"least={least}", f"at least {least}"
    elif least is None:
        name, expected = f"most={most}", f"at most {most}"
    else:
        name, expected = f"{least}, {most}", f"from {least} to {most}"
    return _short(
        f"between({column}, {name})",
        expected,
        "ExpectColumnValuesToBeBetween",
        {"column": column, "min_value": least, "max_value": most},
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
    return _short(
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
    return _short(
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
    return _short(
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


def as_expectation(given: object) -> General:
    if not any(c.__module__.startswith("great_expectations.") for c in type(given).__mro__):
        raise DefinitionError(
            f"{given!r} is not an expectation: use a function of tidemark.quality, or an instance "
            "of a class of great_expectations.expectations."
        )
    made: Any = given
    arguments = {k: v for k, v in made.configuration.kwargs.items() if k not in _OWN}
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return General(
        name=f"{type(given).__name__}({shown})",
        expected=shown or type(given).__name__,
        columns=tuple(_columns(arguments)),
        level=ERROR if str(getattr(made.severity, "value", "")) == "critical" else WARNING,
        description=made.description or "",
        notes=_text(made.notes),
        meta=made.meta or {},
        kind=type(given),
        arguments=arguments,
    )


def _short(
    name: str,
    expected: str,
    kind: str,
    own: Mapping[str, Any],
    level: str,
    more: Mapping[str, Any],
) -> General:
    """Return an expectation that a class of Great Expectations validates.

    Args:
        name: the expectation as code, such as `not_null(origin)`.
        expected: the condition in a few words, such as `a value`.
        kind: the name of the class.
        own: the arguments of that class that the calling function sets.
        more: further arguments of that class, from the user.
    """
    allowed = (*_MORE, *_MORE_OF.get(kind, ()))
    if odd := [k for k in more if k not in allowed]:
        function = name.partition("(")[0]
        raise DefinitionError(
            f"{function} has no parameter '{odd[0]}'. In addition to its own parameters it "
            f"accepts {', '.join(allowed)}."
        )
    arguments = {**own, **more}
    metadata = {k: arguments[k] for k in ("description", "notes", "meta") if k in arguments}
    return General(
        name=name,
        expected=expected,
        columns=tuple(_columns(arguments)),
        level=level,
        kind=kind,
        arguments={k: v for k, v in arguments.items() if v is not None and k not in metadata},
        **metadata,
    )


def _check_bounds(what: str, least: object, most: object) -> None:
    """Refuse bounds without a value between them."""
    pair: Any = least, most
    if any(bound != bound for bound in pair):
        raise DefinitionError(
            f"{what} has the bound NaN, and no value is above or below NaN: give a number."
        )
    try:
        is_empty = None not in pair and pair[0] > pair[1]
    except TypeError:
        raise DefinitionError(
            f"{what}: its bounds must have one type (got {least!r} and {most!r})."
        ) from None
    if is_empty:
        raise DefinitionError(f"{what}: no value is from {least} to {most}; swap the bounds.")


def _text(notes: str | Sequence[str] | None) -> str:
    return notes if isinstance(notes, str) else "\n\n".join(notes or ())


def _columns(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if name in ("column", "column_A", "column_B"):
            yield value
        elif name == "column_list":
            yield from value
