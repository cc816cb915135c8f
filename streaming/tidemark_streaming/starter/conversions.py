"""Recognize times and numbers in the forms of spreadsheets, and give the SQL that converts them.

`tidemark new --from-csv` proposes the SQL as computed columns of the source.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count, product
from typing import NamedTuple

import pyarrow as pa

from tidemark.store.rows import INSTANT

_Value = datetime | float


class Conversion(NamedTuple):
    """A conversion of texts to values of another type.

    Args:
        kind: the type of the values.
        sql: the expression, with `{}` in place of the column.
        parse: returns the value of a text.
    """

    kind: str
    sql: str
    parse: Callable[[str], _Value]

    def convert_texts(self, texts: Sequence[str | None]) -> list[_Value | None]:
        """Return the values of texts; None for a text that does not fit."""
        return [None if text is None else self._convert_text(text) for text in texts]

    def _convert_text(self, text: str) -> _Value | None:
        # Python accepts the digits of all scripts, and Spark only those of ASCII.
        if not text.isascii():
            return None
        try:
            return self.parse(text)
        except (ValueError, OverflowError):
            return None


# American dates are tried before European ones, which differ only if a day is greater than 12.
_DATES = {
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyy/M/d": "%Y/%m/%d",
    "yyyyMMdd": "%Y%m%d",
    "M/d/yyyy": "%m/%d/%Y",
    "d/M/yyyy": "%d/%m/%Y",
    "d.M.yyyy": "%d.%m.%Y",
    "d-M-yyyy": "%d-%m-%Y",
    "d MMM yyyy": "%d %b %Y",
    "d-MMM-yyyy": "%d-%b-%Y",
    "M/d/yy": "%m/%d/%y",
    "d/M/yy": "%d/%m/%y",
    "d.M.yy": "%d.%m.%y",
}
_TIMES = {
    "H:mm:ss": "%H:%M:%S",
    "H:mm": "%H:%M",
    "h:mm:ss a": "%I:%M:%S %p",
    "h:mm a": "%I:%M %p",
}
"""Patterns of Spark, each with the pattern of Python that accepts the same texts."""

_SEPARATORS = {" ": " ", "'T'": "T", ", ": ", "}
_EPOCHS = {
    "timestamp_seconds": 1,
    "timestamp_millis": 1_000,
    "timestamp_micros": 1_000_000,
}
_NANOSECONDS = 1_000_000_000
_EPOCH_SQL = {
    **{f"{function}({{}})": per_second for function, per_second in _EPOCHS.items()},
    "timestamp_micros({} DIV 1000)": _NANOSECONDS,
}
_FIRST_SECOND = int(datetime(1990, 1, 1, tzinfo=UTC).timestamp())
_LAST_SECOND = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
_COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
_FINE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{7,9}(Z|[+-]\d\d:\d\d)?")


def _parse_fine_time(text: str) -> datetime:
    """Return a time whose fraction has more than six digits, without the further digits."""
    if not _FINE_TIME.fullmatch(text):
        raise ValueError
    time = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    if time.tzinfo is not None:
        return time
    return time.replace(tzinfo=UTC)


def _parse_number(text: str) -> float:
    if not _COMMA_NUMBER.fullmatch(text):
        raise ValueError
    return float(text.replace(".", "").replace(",", "."))


def _parse_by(pattern: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, pattern).replace(tzinfo=UTC)


def _parse_epoch(per_second: int) -> Callable[[str], datetime]:
    def parse_text(text: str) -> datetime:
        seconds = int(text) / per_second
        if not _FIRST_SECOND <= seconds < _LAST_SECOND:
            raise ValueError
        return datetime.fromtimestamp(seconds, UTC)

    return parse_text


def _time_conversion(pattern: str, python_pattern: str) -> Conversion:
    sql = f"to_timestamp({{}}, {_quote_text(pattern)})"
    return Conversion("TIMESTAMP", sql, _parse_by(python_pattern))


def _quote_text(pattern: str) -> str:
    if "'" in pattern:
        return '"' + pattern + '"'
    return f"'{pattern}'"


TEXT_TIMES = [
    Conversion("TIMESTAMP", "to_timestamp({})", _parse_fine_time),
    *(
        _time_conversion(
            f"{date}{separator}{time}", f"{_DATES[date]}{_SEPARATORS[separator]}{_TIMES[time]}"
        )
        for date, separator, time in product(_DATES, _SEPARATORS, _TIMES)
    ),
]
"""Conversions of texts with a date and a time."""

DATE_AND_TIME = [
    _time_conversion(f"{date} {time}", f"{_DATES[date]} {_TIMES[time]}")
    for date, time in product(_DATES, _TIMES)
]
"""Conversions of a date and a time of two columns, joined by a space."""

DATES = [_time_conversion(date, pattern) for date, pattern in _DATES.items()]
"""Conversions of texts with a date alone, whose time is midnight."""

EPOCHS = [
    Conversion("TIMESTAMP", sql, _parse_epoch(per_second)) for sql, per_second in _EPOCH_SQL.items()
]
"""Conversions of integers that count time since 1970."""

COMMA_NUMBERS = [
    Conversion("DOUBLE", "CAST(replace(replace({}, '.', ''), ',', '.') AS DOUBLE)", _parse_number)
]
"""The conversion of numbers with a decimal comma."""


class ConvertedColumn(NamedTuple):
    """A column that is computed from other columns.

    Args:
        column: its name.
        sources: the columns from which it is computed.
        values: its values in the file; null for values that can't be converted.
        misfits: the number of values that can't be converted.
    """

    column: str
    kind: str
    sql: str
    sources: Sequence[str]
    values: pa.Array
    misfits: int


def find_conversions(
    table: pa.Table, kinds: Mapping[str, str], share: float
) -> list[ConvertedColumn]:
    """Return the columns to compute from columns with texts, so that times and numbers have their
    type.

    Dates without a time, integers, and two columns are only converted if no other column has times.

    Args:
        kinds: the types of the columns, by name.
        share: the share of a column's values that must fit a conversion.
    """
    search = _Search(table, kinds, share)
    texts = [name for name, kind in kinds.items() if kind == "STRING"]
    for name in texts:
        search.add_conversion([name], TEXT_TIMES, "at")
    has_times = "TIMESTAMP" in kinds.values() or bool(search.converted)
    if not has_times:
        search.convert_first(product(_date_columns(kinds), texts), DATE_AND_TIME)
    if not has_times and not search.converted:
        integers = [name for name, kind in kinds.items() if kind == "BIGINT"]
        search.convert_first(([name] for name in integers), EPOCHS)
    if not has_times and not search.converted:
        search.convert_first(([name] for name in _date_columns(kinds)), DATES)
    for name in texts:
        search.add_conversion([name], COMMA_NUMBERS, f"{name}_value")
    return search.converted


def _date_columns(kinds: Mapping[str, str]) -> list[str]:
    return [name for name, kind in kinds.items() if kind in ("DATE", "STRING")]


class _Search:
    """Finds conversions that fit the columns of a table."""

    def __init__(self, table: pa.Table, kinds: Mapping[str, str], share: float) -> None:
        self._table = table
        self._kinds = kinds
        self._share = share
        self.converted: list[ConvertedColumn] = []

    def convert_first(
        self, candidates: Iterable[Sequence[str]], conversions: Sequence[Conversion]
    ) -> None:
        """Convert the first of several candidates, each a list of columns, that fits."""
        for names in candidates:
            if self.add_conversion(names, conversions, "at"):
                return

    def add_conversion(
        self, names: Sequence[str], conversions: Sequence[Conversion], column: str
    ) -> bool:
        """Add the first conversion that fits a column, or columns that are joined by a space.

        Args:
            column: the name of the new column. If it is taken, another one is chosen.
        """
        converted = set[str]()
        for converted_column in self.converted:
            converted.update(converted_column.sources)
        if len(set(names)) < len(names) or not converted.isdisjoint(names):
            return False
        texts = self._join_texts(names)
        present = sum(text is not None for text in texts)
        if not present:
            return False
        for conversion in conversions:
            values = conversion.convert_texts(texts)
            misfits = present - sum(value is not None for value in values)
            if misfits > (1 - self._share) * present:
                continue
            operand = f"`{names[0]}`"
            if len(names) > 1:
                operand = f"concat({operand}, ' ', `{names[1]}`)"
            kind = pa.float64() if conversion.kind == "DOUBLE" else INSTANT
            converted_column = ConvertedColumn(
                self._free_name(column),
                conversion.kind,
                conversion.sql.format(operand),
                names,
                pa.array(values, kind),
                misfits,
            )
            self.converted.append(converted_column)
            return True
        return False

    def _join_texts(self, names: Sequence[str]) -> list[str | None]:
        columns = [self._table[name].cast(pa.string()).to_pylist() for name in names]
        texts = list[str | None]()
        for parts in zip(*columns, strict=True):
            is_incomplete = None in parts or "" in parts
            texts.append(None if is_incomplete else " ".join(parts))
        return texts

    def _free_name(self, column: str) -> str:
        taken = {name.lower() for name in self._kinds}
        for conversion in self.converted:
            taken.add(conversion.column.lower())
        further = (f"{column}_{number}" for number in count(2))
        names = chain([column, f"event_{column}"], further)
        return next(name for name in names if name.lower() not in taken)
