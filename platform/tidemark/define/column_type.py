"""Parse the column types of definitions: the part of Spark's DDL that every table supports."""

import re
from collections.abc import Iterator

_PLAIN = {
    **dict.fromkeys(("STRING", "BINARY", "BOOLEAN", "DATE", "DOUBLE", "TIMESTAMP"), ""),
    "TIMESTAMP_NTZ": "",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "FLOAT": "",
    "REAL": "FLOAT",
    "TINYINT": "",
    "BYTE": "TINYINT",
    "SMALLINT": "",
    "SHORT": "SMALLINT",
    "INT": "",
    "INTEGER": "INT",
    "BIGINT": "",
    "LONG": "BIGINT",
    "DECIMAL": "",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
"""Types without parameters. An alias maps to its canonical name, other names to an empty text."""

_INSTEAD = {
    **dict.fromkeys(("VARCHAR", "CHAR", "CHARACTER", "TEXT", "UUID", "TIME"), "STRING"),
    **dict.fromkeys(("VARIANT", "JSON", "OBJECT"), "STRING, which keeps the JSON text"),
    "INTERVAL": "BIGINT, a number of microseconds",
    "DATETIME": "TIMESTAMP",
}
_ALLOWED = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, BINARY, ARRAY<…>, MAP<…, …> and STRUCT<name: …>"
)
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")


class UnknownTypeError(ValueError):
    """A text is not a supported type; the message says why and what to write instead."""


def simple_type(text: str) -> str:
    """Return a type as Spark's `simpleString` writes it, without NOT NULL and comments.

    Example:
        simple_type("Array<Integer> NOT NULL")  # "array<int>"

    Raises:
        UnknownTypeError: the text is not a supported type.
    """
    tokens = _Tokens(text)
    found = _type(tokens)
    _suffix(tokens)
    if tokens.next is not None:
        raise tokens.error(f"'{tokens.next}' can't follow")
    return found


class _Tokens:
    """The words and signs of a type, read one at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._rest = self._split(text)
        self.next = next(self._rest, None)

    def _split(self, text: str) -> Iterator[str]:
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"'{text[at:].strip()}' can't be read")
            at = found.end()
            yield found[1]

    def take(self) -> str:
        taken = self.next
        if taken is None:
            raise self.error("it ends too early")
        self.next = next(self._rest, None)
        return taken

    def skip(self, *words: str) -> bool:
        """Skip the next word if it is one of `words`. Return whether it was."""
        found = self.next is not None and self.next.upper() in words
        if found:
            self.take()
        return found

    def expect(self, sign: str) -> None:
        if not self.skip(sign):
            raise self.error(f"'{sign}' is missing before '{self.next or 'the end'}'")

    def error(self, why: str) -> UnknownTypeError:
        return UnknownTypeError(f"{why}; the types are {_ALLOWED}")


def _type(tokens: _Tokens) -> str:
    name = tokens.take()
    kind = name.upper()
    if kind in _INSTEAD:
        raise UnknownTypeError(f"{kind} is not supported: declare it as {_INSTEAD[kind]}")
    if kind == "ARRAY":
        return f"array<{_parts(tokens, 1)}>"
    if kind == "MAP":
        return f"map<{_parts(tokens, 2)}>"
    if kind == "STRUCT":
        return f"struct<{_fields(tokens)}>"
    if kind not in _PLAIN:
        raise tokens.error(f"'{name}' is not a type")
    kind = _PLAIN[kind] or kind
    return (_decimal(tokens) if kind == "DECIMAL" else kind).lower()


def _decimal(tokens: _Tokens) -> str:
    precision, scale = "10", "0"
    if tokens.skip("("):
        precision = tokens.take()
        scale = tokens.take() if tokens.skip(",") else scale
        tokens.expect(")")
    if not (precision.isdecimal() and scale.isdecimal() and int(scale) <= int(precision) <= 38):
        raise tokens.error(f"DECIMAL({precision}, {scale}) needs 0 <= scale <= precision <= 38")
    return f"decimal({int(precision)},{int(scale)})"


def _parts(tokens: _Tokens, count: int) -> str:
    tokens.expect("<")
    found = [_type(tokens)]
    for _ in range(count - 1):
        tokens.expect(",")
        found.append(_type(tokens))
    tokens.expect(">")
    return ",".join(found)


def _fields(tokens: _Tokens) -> str:
    tokens.expect("<")
    found = list[str]()
    while not found or tokens.skip(","):
        name = tokens.take()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        tokens.skip(":")
        found.append(f"{name}:{_type(tokens)}")
        _suffix(tokens)
    tokens.expect(">")
    return ",".join(found)


def _suffix(tokens: _Tokens) -> None:
    if tokens.skip("NOT"):
        tokens.expect("NULL")
    if tokens.skip("COMMENT"):
        tokens.take()
