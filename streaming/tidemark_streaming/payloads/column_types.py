"""The Arrow types of a source's columns, which are declared in Spark's DDL."""

import re
from functools import cache

import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.store.rows import INSTANT

_SIMPLE = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.decimal128(10, 0),
    "NUMERIC": pa.decimal128(10, 0),
    "DEC": pa.decimal128(10, 0),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": INSTANT,
    "TIMESTAMP_LTZ": INSTANT,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_MOST_DIGITS = 38
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|\w+|[<>(),:]|'(?:[^'\\]|\\.)*')")


@cache
def arrow_type(ddl: str) -> pa.DataType:
    """Return the type that values of a column have in memory.

    Args:
        ddl: the type as a source declares it, perhaps with `NOT NULL`.

    Raises:
        DefinitionError: a source can't have a column of this type.
    """
    parser = _Parser(ddl)
    found = parser.column()
    parser.end()
    return found


class _Parser:
    """Parses one declaration."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = list[str]()
        at, end = 0, len(ddl.rstrip())
        while at < end:
            token = _TOKEN.match(ddl, at)
            if token is None:
                raise self._refused()
            self._tokens.append(token[1])
            at = token.end()

    def column(self) -> pa.DataType:
        """Return the type at the current position, and skip its nullability and comment."""
        found = self._type()
        if self._taken("NOT"):
            self._expect("NULL")
        if self._taken("COMMENT"):
            self._next()
        return found

    def end(self) -> None:
        if self._tokens:
            raise self._refused()

    def _type(self) -> pa.DataType:
        name = self._next().upper()
        if name == "ARRAY":
            self._expect("<")
            inner = self.column()
            self._expect(">")
            return pa.list_(inner)
        if name == "MAP":
            self._expect("<")
            key = self.column()
            self._expect(",")
            item = self.column()
            self._expect(">")
            return pa.map_(key, item)
        if name == "STRUCT":
            self._expect("<")
            fields = [self._field()]
            while self._taken(","):
                fields.append(self._field())
            self._expect(">")
            return pa.struct(fields)
        if name in ("DECIMAL", "NUMERIC", "DEC") and self._taken("("):
            digits, scale = self._number(), 0
            if self._taken(","):
                scale = self._number()
            self._expect(")")
            if not 0 < digits <= _MOST_DIGITS or scale > digits:
                raise self._refused()
            return pa.decimal128(digits, scale)
        if name not in _SIMPLE:
            raise self._refused()
        return _SIMPLE[name]

    def _field(self) -> pa.Field:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        self._taken(":")
        return pa.field(name, self.column())

    def _number(self) -> int:
        text = self._next()
        if not text.isdecimal():
            raise self._refused()
        return int(text)

    def _next(self) -> str:
        if not self._tokens:
            raise self._refused()
        return self._tokens.pop(0)

    def _taken(self, token: str) -> bool:
        if self._tokens and self._tokens[0].upper() == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._taken(token):
            raise self._refused()

    def _refused(self) -> DefinitionError:
        return DefinitionError(
            f"A source can't have a column of type '{self._ddl}': declare STRING, BOOLEAN, "
            "TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMP, "
            "TIMESTAMP_NTZ, BINARY, ARRAY<…>, STRUCT<…> or MAP<…>."
        )
