"""Expectations of Great Expectations on the rows of windows, by a thin adapter.

Any of its expectation classes may stand in a transform's list as it is; its `severity` is the
level (`critical` is `error`, `warning` and `info` are `warning`). The functions here are short
names of some of them. Those that ask something of each row (column maps) withhold the rows that
fail; those that ask something of all rows together (a mean, a count) withhold all rows of the run.
What an object says to people (`description`, `notes`, `meta`) goes with it to its check.

Great Expectations takes seconds to import, so a definition only names what it wants of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.arguments import checked
from tidemark.base.errors import DefinitionError
from tidemark.define.expectations.expectation import ERROR, WARNING, Expectation

_OWN = ("id", "meta", "notes", "result_format", "description", "catch_exceptions")
_OWN += ("rendered_content", "severity", "windows", "batch_id")


@dataclass(frozen=True, kw_only=True)
class General(Expectation):
    """An expectation of Great Expectations.

    Args:
        kind: the class, or its name in `great_expectations.expectations`.
        arguments: what it is made with.

    Raises:
        DefinitionError: its row condition is for Spark.
    """

    kind: str | type
    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arguments.get("condition_parser") == "spark":
            raise DefinitionError(
                f"Expectation {self.name}: its row_condition is for Spark, but rows are validated "
                "in memory. Write it with great_expectations.expectations.row_conditions, as in "
                'Column("carrier") == "AA".'
            )


_MORE = ("description", "notes", "meta", "mostly", "row_condition", "condition_parser")
_MORE_OF = {
    "ExpectColumnValuesToBeBetween": ("strict_min", "strict_max"),
    "ExpectColumnPairValuesAToBeGreaterThanB": ("or_equal", "ignore_row_if"),
}
"""What callers may say of a class of Great Expectations, of any and of some."""


@checked
def between(
    column: str, least: object = None, most: object = None, *, level: str = ERROR, **more: object
) -> General:
    """Each value lies from `least` to `most`, both included; null is passed over.

    Example:
        between("mean_delay", -60, 600)
        between("flights", most=500, level="warning")

    Args:
        column: a column of the published rows.
        least: the least value that is allowed; None is no bound.
        most: the greatest.
        level: `error`, where a row that fails is withheld, or `warning`.
        more: what the class of Great Expectations takes besides, such as `description`.

    Raises:
        DefinitionError: no bound.
    """
    if least is None and most is None:
        raise DefinitionError(f"between({column}) has no bound: give the least value or the most.")
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


@checked
def not_null(column: str, *, level: str = ERROR, **more: object) -> General:
    """No value is null.

    Example:
        not_null("origin")

    Args:
        column: a column of the published rows.
        level: `error`, where a row that fails is withheld, or `warning`.
        more: what the class of Great Expectations takes besides, such as `description`.
    """
    return _short(
        f"not_null({column})",
        "a value",
        "ExpectColumnValuesToNotBeNull",
        {"column": column},
        level,
        more,
    )


@checked
def one_of(column: str, values: Sequence[object], *, level: str = ERROR, **more: object) -> General:
    """Each value is one of those listed; null is passed over.

    Example:
        one_of("carrier", ["AA", "DL"])

    Args:
        column: a column of the published rows.
        values: what is allowed.
        level: `error`, where a row that fails is withheld, or `warning`.
        more: what the class of Great Expectations takes besides, such as `description`.
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


@checked
def greater(column: str, than: str, *, level: str = ERROR, **more: object) -> General:
    """A row's value in `column` is greater than that in the column `than`; rows in which either is
    null are passed over.

    Example:
        greater("most", "least")  # a sensor that is stuck tells one value

    Args:
        column: a column of the published rows.
        than: another.
        level: `error`, where a row that fails is withheld, or `warning`.
        more: what the class of Great Expectations takes besides, such as `description`.
    """
    return _short(
        f"greater({column}, {than})",
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


def adapted(given: object) -> General:
    """An expectation object of Great Expectations, as one of ours.

    Raises:
        DefinitionError: it is none.
    """
    if not any(c.__module__.startswith("great_expectations.") for c in type(given).__mro__):
        raise DefinitionError(
            f"{given!r} is no expectation: use the functions of tidemark.quality, or an object of "
            "a class of great_expectations.expectations."
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
    """Return an expectation of a class of Great Expectations.

    Args:
        own, more: the arguments of that class, ours and the caller's.
    """
    allowed = (*_MORE, *_MORE_OF.get(kind, ()))
    if odd := [k for k in more if k not in allowed]:
        function = name.partition("(")[0]
        raise DefinitionError(
            f"{function} has no parameter '{odd[0]}'. Besides its own, it has {', '.join(allowed)}."
        )
    arguments = {**own, **more}
    told = {k: arguments[k] for k in ("description", "notes", "meta") if k in arguments}
    return General(
        name=name,
        expected=expected,
        columns=tuple(_columns(arguments)),
        level=level,
        kind=kind,
        arguments={k: v for k, v in arguments.items() if v is not None and k not in told},
        **told,
    )


def _text(notes: str | Sequence[str] | None) -> str:
    return notes if isinstance(notes, str) else "\n\n".join(notes or ())


def _columns(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        if name in ("column", "column_A", "column_B"):
            yield value
        elif name == "column_list":
            yield from value
