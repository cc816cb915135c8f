"""Parse the column types of definitions: the part of Spark's DDL that every table supports."""

import re
from collections.abc import Iterator
from functools import cache

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PLAIN: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "BOOLEAN": BooleanType(),
    "DATE": DateType(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), TimestampType()),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "DOUBLE": DoubleType(),
    **dict.fromkeys(("FLOAT", "REAL"), FloatType()),
    **dict.fromkeys(("TINYINT", "BYTE"), ByteType()),
    **dict.fromkeys(("SMALLINT", "SHORT"), ShortType()),
    **dict.fromkeys(("INT", "INTEGER"), IntegerType()),
    **dict.fromkeys(("BIGINT", "LONG"), LongType()),
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")

_INSTEAD = {
    **dict.fromkeys(("VARCHAR", "CHAR", "CHARACTER", "TEXT", "UUID", "TIME"), "STRING"),
    **dict.fromkeys(("VARIANT", "JSON", "OBJECT"), "STRING, which keeps the JSON text"),
    "INTERVAL": "BIGINT, as a number of microseconds",
    "DATETIME": "TIMESTAMP",
}
_ALLOWED = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, BINARY, ARRAY<…>, MAP<…, …> and STRUCT<name: …>"
)
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")


_WORD = re.compile(r"\w+")


class UnknownTypeError(ValueError):
    """A text is not a supported type; the message says why and what to write instead."""


@cache
def data_type(text: str) -> DataType:
    """Return the type that a text declares. Ignore `NOT NULL` and `COMMENT` in the text.

    Raises:
        UnknownTypeError: the text is not a supported type.
    """
    tokens = _Tokens(text)
    parsed = _parse_type(tokens)
    _skip_suffix(tokens)
    if tokens.next is not None:
        raise tokens.create_error(f"'{tokens.next}' is not allowed after a type")
    return parsed


def parse_columns(text: str) -> dict[str, str]:
    """Return the columns that a DDL text declares, with their types as in `simple_type`.

    Example:
        parse_columns("at TIMESTAMP, n Integer NOT NULL")  # {"at": "timestamp", "n": "int"}

    Raises:
        UnknownTypeError: a name or a type is missing or not supported, or a name occurs twice.
    """
    tokens = _Tokens(text)
    columns = dict[str, str]()
    for field in _parse_fields(tokens):
        if field.name in columns:
            raise UnknownTypeError(f"the column '{field.name}' is declared twice")
        columns[field.name] = field.dataType.simpleString()
    if tokens.next is not None:
        raise tokens.create_error(f"expected ',' before '{tokens.next}'")
    return columns


def simple_type(text: str) -> str:
    """Return a type as Spark's `simpleString` writes it.

    Example:
        simple_type("Array<Integer> NOT NULL")  # "array<int>"
    """
    return data_type(text).simpleString()


class _Tokens:
    """The tokens of a type (words and punctuation), read one at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rest = self._split_text(text)
        self.next = next(self._rest, None)

    def _split_text(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text.rstrip()):
            match = _TOKEN.match(text, start)
            if match is None:
                raise self.create_error(f"'{text[start:].strip()}' is not a type")
            start = match.end()
            yield match[1]

    def take_token(self) -> str:
        taken = self.next
        if taken is None:
            raise self.create_error("the type is incomplete")
        self.next = next(self._rest, None)
        return taken

    def skip_word(self, *words: str) -> bool:
        """Skip the next word if it is one of `words`. Return whether it was."""
        is_next = self.next is not None and self.next.upper() in words
        if is_next:
            self.take_token()
        return is_next

    def expect_sign(self, sign: str) -> None:
        if not self.skip_word(sign):
            position = "at the end"
            if self.next:
                position = f"before '{self.next}'"
            raise self.create_error(f"expected '{sign}' {position}")

    def create_error(self, why: str) -> UnknownTypeError:
        return UnknownTypeError(f"{why}; the supported types are {_ALLOWED}")


def _parse_type(tokens: _Tokens) -> DataType:
    name = tokens.take_token()
    kind = name.upper()
    if kind in _INSTEAD:
        raise UnknownTypeError(f"{kind} is not supported; declare it as {_INSTEAD[kind]}")
    if kind == "ARRAY":
        (element,) = _parse_parameters(tokens, 1)
        return ArrayType(element)
    if kind == "MAP":
        key, value = _parse_parameters(tokens, 2)
        return MapType(key, value)
    if kind == "STRUCT":
        return _parse_struct(tokens)
    if kind in _DECIMAL:
        return _parse_decimal(tokens)
    if kind not in _PLAIN:
        raise tokens.create_error(f"'{name}' is not a type")
    return _PLAIN[kind]


def _parse_decimal(tokens: _Tokens) -> DecimalType:
    precision = "10"
    scale = "0"
    if tokens.skip_word("("):
        precision = tokens.take_token()
        if tokens.skip_word(","):
            scale = tokens.take_token()
        tokens.expect_sign(")")
    if not (precision.isdecimal() and scale.isdecimal() and int(scale) <= int(precision) <= 38):
        raise tokens.create_error(
            f"DECIMAL({precision}, {scale}) must have a precision of at most 38, and a scale of at "
            "most the precision"
        )
    return DecimalType(int(precision), int(scale))


def _parse_parameters(tokens: _Tokens, count: int) -> list[DataType]:
    tokens.expect_sign("<")
    types = [_parse_type(tokens)]
    for _ in range(count - 1):
        tokens.expect_sign(",")
        types.append(_parse_type(tokens))
    tokens.expect_sign(">")
    return types


def _parse_struct(tokens: _Tokens) -> StructType:
    tokens.expect_sign("<")
    fields = _parse_fields(tokens)
    tokens.expect_sign(">")
    return StructType(fields)


def _parse_fields(tokens: _Tokens) -> list[StructField]:
    """Return names with their types, separated by commas: the fields of a struct, or columns."""
    fields = list[StructField]()
    while not fields or tokens.skip_word(","):
        name = tokens.take_token()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not _WORD.fullmatch(name):
            raise tokens.create_error(f"'{name}' is not a name")
        tokens.skip_word(":")
        fields.append(StructField(name, _parse_type(tokens)))
        _skip_suffix(tokens)
    return fields


def _skip_suffix(tokens: _Tokens) -> None:
    if tokens.skip_word("NOT"):
        tokens.expect_sign("NULL")
    if tokens.skip_word("COMMENT"):
        tokens.take_token()
