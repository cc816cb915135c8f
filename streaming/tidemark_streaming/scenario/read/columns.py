"""Column types, and the values that a scenario gives for them.

A value is parsed by its column's type to the corresponding Python value: a `timestamp` is an aware
datetime in UTC, a `timestamp_ntz` a naive one, a decimal a Decimal.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Context, Decimal, InvalidOperation

import yaml

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY, as_datetime
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.pairing import Pairing
from tidemark.define.source import Source
from tidemark_streaming.scenario.read.reader import Node

_BITS = {
    "tinyint": 8,
    "byte": 8,
    "smallint": 16,
    "short": 16,
    "int": 32,
    "integer": 32,
    "bigint": 64,
    "long": 64,
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")
NUMERAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_ROOMY = Context(prec=100)
_NAMES = ("boolean", *_BITS, "float", "double", "decimal(p,s)", "string", "date", "timestamp")


@dataclass(frozen=True)
class Kind:
    """A type of values in scenario files, and how a value of the type is parsed.

    Args:
        ddl: the name of the type; for a column, Spark's name.
        parse: returns the value of a node; raises a ValueError if it does not fit.
        is_numeric: true if values can be added.
        repeated: true if a value is a list of values of the type `ddl`.
        scalar: true if a value is written as a YAML scalar.
    """

    ddl: str
    parse: Callable[[Node], object]
    is_numeric: bool = False
    repeated: bool = False
    scalar: bool = True

    def read_value(self, node: Node, column: str) -> object:
        """Return the value, or None for null."""
        if node.is_null:
            return None
        if self.repeated:
            element = replace(self, repeated=False)
            return [element.read_value(item, column) for item in node.read_items(f"'{column}'")]
        if self.scalar:
            node.read_text(f"a value of '{column}'")
        try:
            return self.parse(node)
        except ValueError:
            raise node.error(f"{node} is not a valid {self.ddl} for column '{column}'.") from None


def read_kind(node: Node) -> Kind:
    """Return the type that a scenario declares for a source's column."""
    with node.locate_errors():
        simple = _simple_kind(node.read_text("a column's type"))
    if simple is None:
        raise node.error(f"{node} is not a supported column type; allowed: {', '.join(_NAMES)}.")
    return simple


def _simple_kind(ddl: str) -> Kind | None:
    """Return the type with that Spark name, or None if it is not a simple type."""
    name = ddl.strip().lower()
    name = "timestamp" if name == "timestamp_ltz" else name
    if name in _BITS:
        return Kind(name, lambda n: _parse_integer(n, _BITS[name]), is_numeric=True)
    if match := _DECIMAL.fullmatch(name):
        precision = int(match[1] or 10)
        scale = int(match[2] or 0)
        if not (1 <= precision <= 38 and scale <= precision):
            raise DefinitionError(
                f"'{ddl}' is not a valid type: the precision must be 1 to 38, and the scale at "
                "most the precision."
            )
        return Kind(name, lambda n: _parse_decimal(n, precision, scale), is_numeric=True)
    if name in _OTHERS:
        return Kind(name, _OTHERS[name], is_numeric=name in ("float", "real", "double"))
    return None


def _null_only_kind(ddl: str) -> Kind:
    """Return a type for a column that may only be null in a scenario: a value is an error."""

    def refuse_value(node: Node) -> object:
        raise node.error(
            f"a scenario can't contain values of type {ddl}: omit the value, so that it is null."
        )

    return Kind(ddl.lower(), refuse_value, scalar=False)


def any_value() -> Kind:
    """Return a placeholder type for values that a transform's code computes: their type is known
    only after a run. A value that is written as a number, boolean, list or mapping is parsed as
    such, and any other value as text.
    """
    return Kind("any value", _parse_value, scalar=False)


def _parse_value(node: Node) -> object:
    match node.raw:
        case yaml.SequenceNode():
            return [any_value().read_value(item, "") for item in node.read_items("a list")]
        case yaml.MappingNode():
            values = dict[str, object]()
            for key, value in node.read_entries("a mapping"):
                values[key.raw.value] = any_value().read_value(value, "")
            return values
        case _ if node.raw.tag.endswith((":int", ":float")) and NUMERAL.fullmatch(node.raw.value):
            return _parse_number(node)
        case _ if node.raw.tag.endswith(":bool") and node.raw.value.lower() in ("true", "false"):
            return node.read_boolean("a value")
        case _:
            return Written(node.raw.value)


class Written(str):
    """An expected value whose type is unknown, as it is written.

    It is compared according to the type of the value in the result.
    """


def _parse_number(node: Node) -> Decimal:
    """Return a finite number, exactly as it is written."""
    if not NUMERAL.fullmatch(node.raw.value):
        raise ValueError(node.raw.value)
    try:
        return Decimal(node.raw.value)
    except InvalidOperation:
        raise ValueError(node.raw.value) from None


def _parse_bound(node: Node) -> object:
    """Return a window's bound or a watermark: an instant, or `+infinity`."""
    text = node.raw.value
    return as_datetime(INFINITY if text == "+infinity" else node.read_instant("a time"))


def _parse_integer(node: Node, bits: int) -> int:
    value = int(node.raw.value) if _INTEGER.fullmatch(node.raw.value) else None
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(node.raw.value)
    return value


def _parse_decimal(node: Node, precision: int, scale: int) -> Decimal:
    value = _parse_number(node)
    _, digits, exponent = value.normalize(_ROOMY).as_tuple()
    assert isinstance(exponent, int)
    if value and (-exponent > scale or len(digits) + exponent > precision - scale):
        raise ValueError(node.raw.value)
    return value.quantize(Decimal(1).scaleb(-scale), context=_ROOMY)


def _parse_double(node: Node) -> float:
    text = node.raw.value.lower().replace(".inf", "inf").replace(".nan", "nan")
    if text.lstrip("+-") in ("nan", "inf", "infinity"):
        return float(text)
    value = float(_parse_number(node))
    if math.isinf(value):
        raise ValueError(text)
    return value


def _parse_single(node: Node) -> float:
    try:
        return struct.unpack("f", struct.pack("f", _parse_double(node)))[0]
    except OverflowError:
        raise ValueError(node.raw.value) from None


_OTHERS: dict[str, Callable[[Node], object]] = {
    "boolean": lambda n: n.read_boolean("a value"),
    "float": _parse_single,
    "real": _parse_single,
    "double": _parse_double,
    "string": lambda n: n.raw.value,
    "date": lambda n: date.fromisoformat(n.raw.value),
    "timestamp": lambda n: as_datetime(n.read_instant("a time")),
    "timestamp_ntz": lambda n: as_datetime(n.read_instant("a time")).replace(tzinfo=None),
}
BIGINT = Kind("bigint", lambda n: _parse_integer(n, 64), is_numeric=True)
DOUBLE = Kind("double", _parse_double, is_numeric=True)
BOOLEAN = Kind("boolean", _OTHERS["boolean"])
TEXT = Kind("string", _OTHERS["string"])
NUMBER = Kind("a number", _parse_number, is_numeric=True)
BOUND = Kind("timestamp", _parse_bound)


@dataclass(frozen=True)
class Columns:
    """The columns of a scenario's source, by which the values in the file are parsed.

    Args:
        aliases: column names by alias. A scenario may use the alias instead of the column name.
    """

    types: Mapping[str, Kind]
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def find_column(self, node: Node, subject: str = "a column") -> str:
        """Return the name of a column that a node specifies by its name or alias."""
        name = node.read_text(subject)
        name = name if name in self.types else self.aliases.get(name, name)
        if name not in self.types:
            raise node.error(
                f"{node} is not a column of the source; its columns are {', '.join(self.types)}."
            )
        return name


def columns_of(source: Source) -> Columns:
    """Return the columns of a source.

    In a scenario, a column of a join has the alias `l.COLUMN` or `r.COLUMN`, with the name of the
    left or right source's column. The event time of a derived source has the alias `at`.
    """
    if not isinstance(source, DerivedSource):
        return Columns(_types_of(source))
    aliases = {"at": source.event_time}
    derivation = source.derivation
    if isinstance(derivation, Pairing):
        for letter, names in (("l", derivation.left_columns), ("r", derivation.right_columns)):
            joined = {**names, **{key: key for key in derivation.on}}
            aliases |= {f"{letter}.{old}": new for old, new in joined.items()}
    return Columns(_types_of(source), aliases)


def find_source(node: Node, sources: Mapping[str, Source]) -> Source:
    """Return the source that a node names."""
    return sources[node.read_word("a source", list(sources))]


def _types_of(source: Source) -> dict[str, Kind]:
    """Return the types of a source's columns, including those that a scenario can't contain."""
    return {name: _simple_kind(ddl) or _null_only_kind(ddl) for name, ddl in source.columns.items()}
