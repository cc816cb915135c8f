"""Decode JSON values in Python, exactly by RFC 8259, to the types of their columns.

A JSON text is parsed only as deeply as the types of the columns require. If the JSON value of a
STRING column is a number, a boolean, an array or an object, the column therefore has the original
text of that value.
"""

import re
from collections.abc import Collection, Iterator
from json import JSONDecoder
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.faults import Fault
from tidemark_streaming.payloads.nested import MAX_DEPTH
from tidemark_streaming.payloads.payload import UndecodableError
from tidemark_streaming.payloads.text_values import (
    TimeFormats,
    decode_base64,
    faults_of,
    parse_texts,
)

NOT_AN_OBJECT = "The record is not a JSON object."
"""The reason of a dead letter that is not a single JSON object."""

HAS_SCHEMA_ID = (
    "The record begins with a schema ID (a zero byte and four bytes) instead of a JSON object. If "
    "all records do, set the format to Json(by_id=True)."
)
"""The reason of a dead letter in the wire format of Confluent's serializers."""

NOT_UTF8 = "The record is not valid UTF-8."
"""The reason of a dead letter that is not text."""

_SPACES = b" \t\n\r"
_SPACE = re.compile(r"[ \t\n\r]*")
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_NUMBER = frozenset("-0123456789")
_NO_NUMBER = re.compile(r'"(?:nan|[+-]?inf(?:inity)?)"', re.IGNORECASE)


def duplicate_reason(name: str) -> str:
    """Return the reason of a dead letter that has two fields with the same name."""
    return f"The record has the field '{name}' more than once."


def object_members(value: bytes, names: Collection[str]) -> dict[str, str]:
    """Return the members of a JSON object by name, each as its original text.

    Raises:
        UndecodableError: the value is not a JSON object, is nested too deeply, or has a member in
            `names` twice.
    """
    if value[:1] == b"\0" and value[5:].lstrip(_SPACES).startswith(b"{"):
        raise UndecodableError(HAS_SCHEMA_ID)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise UndecodableError(NOT_UTF8) from None
    if _is_too_deep(text):
        raise UndecodableError(
            f"The record has more than {MAX_DEPTH} levels of nested objects and arrays."
        )
    members = dict[str, str]()
    try:
        start = _skip_spaces(text, 0)
        for name, member in _split_members(text[start:] if start else text):
            if name in members and name in names:
                raise UndecodableError(duplicate_reason(name))
            members[name] = member
    except ValueError:
        raise UndecodableError(NOT_AN_OBJECT) from None
    return members


class Reader(Protocol):
    """Collects the values of a column, and builds the column at the end.

    Args:
        faults: what is wrong with the values that do not have the column's type, by row.
    """

    faults: dict[int, Fault]

    def add_value(self, text: str | None, row: int) -> None:
        """Add the value of a row, given as its original text. None and "null" become null."""
        ...

    def finish_column(self) -> "pa.Array[Any]":
        """Return the column. Values that do not have the column's type are null, too."""
        ...


def create_reader(kind: pa.DataType, formats: TimeFormats) -> Reader:
    """Create a reader for a column of this type."""
    if pa.types.is_map(kind):
        return _Map(kind, formats)
    if pa.types.is_struct(kind):
        return _Struct(kind, formats)
    if pa.types.is_list(kind):
        return _List(kind, formats)
    return _Leaf(kind, formats)


class _Leaf:
    """Reads a column of a scalar type."""

    def __init__(self, kind: pa.DataType, formats: TimeFormats) -> None:
        self.faults = dict[int, Fault]()
        self._kind = kind
        self._formats = formats
        self._texts = list[str | None]()
        self._rows = list[int]()
        counts = formats.are_counts and pa.types.is_timestamp(kind)
        numbers = counts or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        self._numbers = numbers or pa.types.is_decimal(kind)
        # The unit of counts is declared, so a number in quotes can't be anything else.
        self._texts_too = counts or not (numbers or pa.types.is_boolean(kind))

    def add_value(self, text: str | None, row: int) -> None:
        if text is not None:
            text = None if text == "null" else self._fitting_text(text, row)
        self._texts.append(text)
        self._rows.append(row)

    def _fitting_text(self, text: str, row: int) -> str | None:
        """Return the text of a value; None if its JSON type does not fit the column."""
        kind = self._kind
        is_text = text[0] == '"'
        if is_text and self._texts_too:
            content, _ = _value(text, 0)
            if _is_unicode(content):
                return content
        if is_text and pa.types.is_floating(kind) and _NO_NUMBER.fullmatch(text):
            return text[1:-1]
        if not is_text and pa.types.is_string(kind):
            return text
        if self._numbers and text[0] in _NUMBER:
            return text
        if pa.types.is_boolean(kind) and text in ("true", "false"):
            return text
        self.faults[row] = Fault.MISFIT
        return None

    def finish_column(self) -> "pa.Array[Any]":
        texts = pa.array(self._texts, pa.string())
        if pa.types.is_binary(self._kind):
            parsed = decode_base64(texts)
        else:
            parsed = _join_chunks(parse_texts(texts, self._kind, self._formats))
        invalid = pc.indices_nonzero(pc.and_(pc.is_valid(texts), pc.is_null(parsed)))
        faults = faults_of(texts.take(invalid), self._kind, self._formats)
        for index, fault in zip(invalid.to_pylist(), faults, strict=True):
            self.faults[self._rows[index]] = fault
        return parsed


class _List:
    """Reads a column of arrays."""

    def __init__(self, kind: pa.ListType, formats: TimeFormats) -> None:
        self.faults = dict[int, Fault]()
        self._kind = kind
        self._inner = create_reader(kind.value_type, formats)
        self._offsets = list[int | None]()
        self._count = 0

    def add_value(self, text: str | None, row: int) -> None:
        if text is None or text[0] != "[":
            self._offsets.append(None)
            if text not in (None, "null"):
                self.faults[row] = Fault.MISFIT
            return
        self._offsets.append(self._count)
        for element in _split_elements(text):
            self._inner.add_value(element, row)
            self._count += 1

    def finish_column(self) -> "pa.Array[Any]":
        inner = self._inner.finish_column()
        self.faults |= self._inner.faults
        offsets = pa.array([*self._offsets, self._count], pa.int32())
        return pa.ListArray.from_arrays(offsets, inner, self._kind)


class _Struct:
    """Reads a STRUCT column: objects whose members the type names."""

    def __init__(self, kind: pa.StructType, formats: TimeFormats) -> None:
        self.faults = dict[int, Fault]()
        self._kind = kind
        self._is_object = list[bool]()
        self._inner = {part.name: create_reader(part.type, formats) for part in kind}

    def add_value(self, text: str | None, row: int) -> None:
        is_there = text is not None and text[0] == "{"
        members = dict[str, str]()
        for name, member in _split_members(text) if text is not None and is_there else ():
            if name in members and name in self._inner:
                self.faults[row] = Fault.MISFIT
            members[name] = member
        if not is_there and text not in (None, "null"):
            self.faults[row] = Fault.MISFIT
        self._is_object.append(is_there)
        for name, inner in self._inner.items():
            inner.add_value(members.get(name), row)

    def finish_column(self) -> "pa.Array[Any]":
        parts = [inner.finish_column() for inner in self._inner.values()]
        for inner in self._inner.values():
            self.faults |= inner.faults
        missing = pc.invert(pa.array(self._is_object, pa.bool_()))
        return pa.StructArray.from_arrays(parts, fields=list(self._kind), mask=missing)


class _Map:
    """Reads a MAP column: objects with arbitrary members."""

    def __init__(self, kind: pa.MapType, formats: TimeFormats) -> None:
        self.faults = dict[int, Fault]()
        self._kind = kind
        self._inner = create_reader(kind.item_type, formats)
        self._offsets = list[int | None]()
        self._keys = list[Any]()

    def add_value(self, text: str | None, row: int) -> None:
        if text is None or text[0] != "{":
            self._offsets.append(None)
            if text not in (None, "null"):
                self.faults[row] = Fault.MISFIT
            return
        self._offsets.append(len(self._keys))
        names = set[str]()
        for name, member in _split_members(text):
            key = self._parse_key(name)
            if key is None or name in names:
                self.faults[row] = Fault.MISFIT
                continue
            names.add(name)
            self._keys.append(key)
            self._inner.add_value(member, row)

    def _parse_key(self, name: str) -> object:
        """Return a member's name as a key of the map; None if it does not have the key's type."""
        kind = self._kind.key_type
        if pa.types.is_string(kind):
            return name if _is_unicode(name) else None
        return parse_texts(pa.array([name], pa.string()), kind, TimeFormats())[0].as_py()

    def finish_column(self) -> "pa.Array[Any]":
        items = self._inner.finish_column()
        self.faults |= self._inner.faults
        keys = pa.array(self._keys, self._kind.key_type)
        offsets = pa.array([*self._offsets, len(keys)], pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, self._kind)


def _join_chunks(column: pa.ChunkedArray) -> "pa.Array[Any]":
    if column.chunks:
        return pa.concat_arrays(column.chunks)
    return pa.nulls(0, column.type)


def _is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates, so that it can be encoded as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_value = JSONDecoder(parse_float=str, parse_int=str, parse_constant=_no_constant).raw_decode


def _split_members(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the original text of each member of an object.

    Raises:
        ValueError: the text is not a JSON object, or has other text after the object.
    """
    index = _skip_sign(text, 0, "{")
    if text[index : index + 1] == "}":
        index += 1
    else:
        while True:
            if text[index : index + 1] != '"':
                raise ValueError("a member without a name")
            name, index = _value(text, index)
            start = _skip_sign(text, _skip_spaces(text, index), ":")
            _, end = _value(text, start)
            yield name, text[start:end]
            index = _skip_spaces(text, end)
            if text[index : index + 1] != ",":
                break
            index = _skip_spaces(text, index + 1)
        index = _skip_sign(text, index, "}")
    if _skip_spaces(text, index) != len(text):
        raise ValueError("more than an object")


def _split_elements(text: str) -> Iterator[str]:
    """Yield the original text of each element of an array. The text must be a valid array."""
    index = _skip_sign(text, 0, "[")
    while text[index] != "]":
        _, end = _value(text, index)
        yield text[index:end]
        index = _skip_spaces(text, end)
        if text[index] == ",":
            index = _skip_spaces(text, index + 1)


def _skip_sign(text: str, index: int, sign: str) -> int:
    """Return the position after the character `sign` and the white space that follows it.

    Raises:
        ValueError: the text has another character at `index`.
    """
    if text[index : index + 1] != sign:
        raise ValueError(f"no {sign}")
    return _skip_spaces(text, index + 1)


def _skip_spaces(text: str, index: int) -> int:
    """Return the position of the first character from `index` on that is not white space."""
    space = _SPACE.match(text, index)
    assert space is not None
    return space.end()


def _is_too_deep(text: str) -> bool:
    """Return whether objects and arrays are nested more than `MAX_DEPTH` levels deep."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    depth = 0
    for sign in _NESTING.findall(text):
        depth += (sign in "[{") - (sign in "]}")
        if depth > MAX_DEPTH:
            return True
    return False
