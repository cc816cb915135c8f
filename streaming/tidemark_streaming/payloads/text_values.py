"""Parse values that are written as text, exactly or not at all.

The entire text must match the rule of its column's type. A value is never truncated, rounded or
wrapped around to fit. A DOUBLE or FLOAT is the representable number nearest to the number in the
text. It is zero or infinite only if the text is a zero or infinity.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_FLOOR,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
)
from functools import partial
from typing import Any

import pyarrow as pa

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.store.rows import INSTANT
from tidemark.store.rows import compute as pc
from tidemark_streaming.payloads.faults import Fault
from tidemark_streaming.payloads.time_patterns import Pattern, keep_matching
from tidemark_streaming.payloads.time_rules import (
    FINER_OPTION,
    TRUNCATE,
    ZONE_OPTION,
    TimeRules,
    floor_to_micros,
)

_Texts = Any
"""An Arrow array or chunked array of STRING."""

DAY = r"(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))"
_TIME = r"((?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)"
_OFFSET = r"(?:Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?)"
"""The offset of a time. It is at most 17:59, because Spark, which decodes the records of lanes,
does not read larger offsets."""

WITH_OFFSET = f"^{DAY}[T ]{_TIME}{_OFFSET}$"
WITHOUT_OFFSET = f"^{DAY}(?:[T ]{_TIME})?$"
_FINER = r"^(.*\.\d{{6}}){digits}+(\D*|[+-]\d\d:?(?:\d\d)?)$"

_WHOLE = r"^[+-]?0*\d{1,18}$"
_LONGER = r"^[+-]?0*\d{19}$"
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_NO_NUMBER = r"^(?i:nan|[+-]?inf(?:inity)?)$"
ZERO = r"^[+-]?[0.]+(?:[eE].*)?$"


def parse_texts(texts: _Texts, kind: pa.DataType, formats: "TimeFormats") -> "pa.ChunkedArray[Any]":
    """Parse texts as values of a type. A text that is not such a value becomes null.

    Args:
        kind: a scalar type.
    """
    texts = pa.chunked_array([texts], pa.string()) if isinstance(texts, pa.Array) else texts
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind):
        return pc.cast(texts, kind)
    if pa.types.is_boolean(kind):
        is_true = pc.match_substring_regex(texts, "^(?i:true)$")
        is_false = pc.match_substring_regex(texts, "^(?i:false)$")
        return pc.if_else(pc.or_(is_true, is_false), is_true, None)
    if pa.types.is_integer(kind):
        return _parse_integers(texts, kind)
    if pa.types.is_floating(kind):
        return _parse_floats(texts, kind)
    if pa.types.is_decimal(kind):
        return _parse_decimals(texts, kind)
    if pa.types.is_date(kind):
        return _in_calendar(
            _cast_texts(keep_matching(formats.as_iso(texts, kind), f"^{DAY}$"), kind)
        )
    if formats.are_counts:
        return formats.parse_counts(texts, kind)
    return _parse_times(formats.as_iso(texts, kind), kind, formats)


def faults_of(texts: _Texts, kind: pa.DataType, formats: "TimeFormats") -> list[Fault]:
    """Return what is wrong with texts that `parse_texts` can't parse as values of a type."""
    if not pa.types.is_timestamp(kind) or not len(texts):
        return [Fault.MISFIT] * len(texts)
    # A text is at fault only for its precision or its zone if it can be parsed without this rule.
    truncating = replace(formats, finer=TRUNCATE)
    zoned = replace(truncating, zone=formats.zone or "UTC")
    is_finer = pc.is_valid(parse_texts(texts, kind, truncating)).to_pylist()
    is_local = pc.is_valid(parse_texts(texts, kind, zoned)).to_pylist()
    faults = list[Fault]()
    for finer, local in zip(is_finer, is_local, strict=True):
        if finer:
            faults.append(Fault.FINER)
        elif local:
            faults.append(Fault.NO_ZONE)
        else:
            faults.append(Fault.MISFIT)
    return faults


def decode_utf8(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return bytes as texts. A value that is not valid UTF-8 becomes null."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array(
            [pa.array(map(_decode_utf8_value, values.to_pylist()), pa.string())]
        )


def decode_base64(texts: _Texts) -> "pa.Array[Any]":
    """Return base64 texts as bytes. A text that is not canonical base64 becomes null."""
    return pa.array([_decode_base64_text(text) for text in texts.to_pylist()], pa.binary())


TIME_OPTIONS = {
    "timestampFormat": "timestamp",
    "dateFormat": "date",
    ZONE_OPTION: "zone",
    FINER_OPTION: "finer",
}
"""Options of text formats, each with the argument of `TimeFormats` that it sets."""


@dataclass(frozen=True)
class TimeFormats:
    """The formats of times: ISO 8601, a pattern, or a count since 1970.

    A pattern has Spark's letters: `yyyy`, or `yy` for the years 2000 to 2099; `MM`, `MMM` (`Jan`)
    or `MMMM` (`January`); `dd`; `HH`, or `hh` with `a` (`AM`, `PM`); `mm`, `ss`; one to nine `S`
    for the digits of a fraction; `M`, `d`, `H` and `h` for one or two digits; `XXX` or `XX` for an
    offset; and text in quotes. With more than six `S`, digits beyond microseconds are dropped.

    Args:
        timestamp: the pattern of TIMESTAMP and TIMESTAMP_NTZ; or `epochSeconds`, `epochMillis`,
            `epochMicros` or `epochNanos`, for numbers.
        date: the pattern of DATE.
        zone: the time zone of a TIMESTAMP without an offset. By default, such a time is refused.
        finer: `truncate` to drop the digits of times beyond microseconds. By default, a time with
            such digits is refused unless they are zeros.
    """

    timestamp: str | None = None
    date: str | None = None
    zone: str | None = None
    finer: str | None = None

    def __post_init__(self) -> None:
        _ = self.time_rules
        for pattern in (self.timestamp, self.date):
            if pattern is not None and not (pattern == self.timestamp and self.are_counts):
                Pattern(pattern)

    @classmethod
    def from_options(cls, options: Mapping[str, str | bool]) -> "TimeFormats":
        """Return the formats that the options of a format specify."""
        formats = dict[str, str]()
        for option, argument in TIME_OPTIONS.items():
            if option in options:
                formats[argument] = str(options[option])
        return cls(**formats)

    @property
    def are_counts(self) -> bool:
        """Return whether timestamps are written as counts since 1970, which are numbers."""
        return self.timestamp in _NANOS

    @property
    def time_rules(self) -> TimeRules:
        """What to do with times without a zone, and with times finer than microseconds."""
        return TimeRules(self.zone, self.finer)

    @property
    def droppable_digits(self) -> str:
        """The pattern of a time with digits beyond microseconds that can be dropped."""
        return _FINER.format(digits=r"\d" if self.time_rules.is_truncating else "0")

    @property
    def count_nanos(self) -> int:
        """Return the unit of counts, in nanoseconds."""
        return _NANOS[self.timestamp or ""]

    @property
    def count_range(self) -> tuple[int, int]:
        """Return the smallest and the greatest valid count.

        Valid counts are in the years 1 to 9999 and fit 64 bits.
        """
        least = max(BEGINNING * 1000 // self.count_nanos, -(2**63))
        return least, min(INFINITY * 1000 // self.count_nanos, 2**63 - 1)

    def from_counts(
        self, numbers: "pa.ChunkedArray[Any]", kind: pa.DataType
    ) -> "pa.ChunkedArray[Any]":
        """Return whole counts since 1970 as timestamps. A timestamp is null if it is outside the
        years 1 to 9999, or if it is finer than microseconds and is not truncated."""
        least, most = self.count_range
        is_in_range = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
        numbers = pc.if_else(is_in_range, numbers, None)
        if self.count_nanos >= _NANOS["epochMicros"]:
            micros = pc.multiply(numbers, self.count_nanos // 1000)
        else:
            micros = floor_to_micros(numbers)
            if not self.time_rules.is_truncating:
                is_exact = pc.equal(pc.multiply(micros, 1000), numbers)
                micros = pc.if_else(is_exact, micros, None)
        return pc.cast(micros, kind)

    def parse_counts(self, texts: _Texts, kind: pa.DataType) -> "pa.ChunkedArray[Any]":
        """Return numbers as timestamps, as `from_counts` does. A number may have a fraction."""
        numbers = _parse_integers(texts, pa.int64())
        if numbers.null_count == texts.null_count:
            return self.from_counts(numbers, kind)
        micros = [self._count_micros(text) for text in keep_matching(texts, _NUMBER).to_pylist()]
        return pa.chunked_array([pa.array(micros, pa.int64()).cast(kind)])

    def _count_micros(self, text: str | None) -> int | None:
        """Return a count as microseconds since 1970; None if it is not a timestamp."""
        if text is None:
            return None
        try:
            sign, digits, exponent = Decimal(text).as_tuple()
        except ArithmeticError:
            return None
        if not isinstance(exponent, int):
            return None
        micros = Decimal((sign, digits, exponent + self.count_places))
        if micros and micros.adjusted() > _MICROS_DIGITS:
            return None
        # Nanoseconds must fit 64 bits, as those without a fraction.
        least, most = self.count_range
        if self.count_places < 0 and not least <= Decimal(text) < most + 1:
            return None
        # Truncated to the past, also before 1970.
        whole_micros = micros.to_integral_value(ROUND_FLOOR)
        if whole_micros != micros and not self.time_rules.is_truncating:
            return None
        if BEGINNING <= whole_micros <= INFINITY:
            return int(whole_micros)
        return None

    @property
    def count_places(self) -> int:
        """The number of decimal places by which a count differs from microseconds; negative for
        nanoseconds."""
        return _PLACES[self.timestamp or ""]

    def pattern_of(self, kind: pa.DataType) -> "Pattern | None":
        """Return the pattern of a type; None for ISO 8601."""
        pattern = self.date if pa.types.is_date(kind) else self.timestamp
        if pattern is None:
            return None
        return Pattern(pattern)

    def as_iso(self, texts: _Texts, kind: pa.DataType) -> _Texts:
        """Return texts in the form of ISO 8601; null if a text does not match the pattern."""
        pattern = self.pattern_of(kind)
        if pattern is None:
            return texts
        return pattern.as_iso(texts)


_NANOS = {
    "epochSeconds": 1_000_000_000,
    "epochMillis": 1_000_000,
    "epochMicros": 1_000,
    "epochNanos": 1,
}
_PLACES = {"epochSeconds": 6, "epochMillis": 3, "epochMicros": 0, "epochNanos": -3}
_MICROS_DIGITS = 20
"""More digits than microseconds of the years 1 to 9999 have."""


def _parse_times(texts: _Texts, kind: pa.DataType, formats: TimeFormats) -> "pa.ChunkedArray[Any]":
    """Parse times of ISO 8601. If the type has a time zone, times without an offset are in the zone
    of the formats. If it does not, times with an offset become null."""
    with_zone = kind == INSTANT
    if with_zone and pc.all(pc.match_substring_regex(texts, WITH_OFFSET)).as_py() is not False:
        return _in_calendar(_cast_texts(texts, kind))
    if pc.any(pc.match_substring_regex(texts, formats.droppable_digits)).as_py():
        texts = pc.replace_substring_regex(texts, formats.droppable_digits, r"\1\2")
    local = _in_calendar(_cast_texts(keep_matching(texts, WITHOUT_OFFSET), pa.timestamp("us")))
    if not with_zone:
        return local
    zoned = _in_calendar(_cast_texts(keep_matching(texts, WITH_OFFSET), kind))
    if formats.zone is None:
        return zoned
    return _in_calendar(pc.coalesce(zoned, formats.time_rules.to_utc(local)))


def _in_calendar(times: _Texts) -> "pa.ChunkedArray[Any]":
    micros = pc.cast(pc.cast(times, pa.timestamp("us")), pa.int64())
    is_in_range = pc.and_(pc.greater_equal(micros, BEGINNING), pc.less_equal(micros, INFINITY))
    if pc.all(is_in_range).as_py() is not False:
        return times
    return pc.if_else(is_in_range, times, None)


def _parse_integers(texts: _Texts, kind: pa.DataType) -> "pa.ChunkedArray[Any]":
    if pc.any(pc.starts_with(texts, "+")).as_py():
        texts = pc.replace_substring_regex(texts, r"^\+(\d)", r"\1")
    numbers = pc.cast(keep_matching(texts, _WHOLE), pa.int64())
    longer = pc.match_substring_regex(texts, _LONGER)
    if pc.any(longer).as_py():
        numbers = pc.coalesce(numbers, _cast_texts(pc.if_else(longer, texts, None), pa.int64()))
    if kind == pa.int64():
        return numbers
    most = 2 ** (kind.bit_width - 1)
    fits = pc.and_(pc.greater_equal(numbers, -most), pc.less(numbers, most))
    return pc.cast(pc.if_else(fits, numbers, None), kind)


def _parse_floats(texts: _Texts, kind: pa.DataType) -> "pa.ChunkedArray[Any]":
    numbers = pc.cast(keep_matching(texts, _NUMBER), kind)
    lost = pc.and_(pc.equal(numbers, 0), pc.invert(pc.match_substring_regex(texts, ZERO)))
    fits = pc.and_(pc.is_finite(numbers), pc.invert(lost))
    valid = pc.if_else(fits, numbers, None)
    is_special = pc.match_substring_regex(texts, _NO_NUMBER)
    if not pc.any(is_special).as_py():
        return valid
    return pc.coalesce(valid, pc.cast(pc.if_else(is_special, texts, None), kind))


def _parse_decimals(texts: _Texts, kind: pa.Decimal128Type) -> "pa.ChunkedArray[Any]":
    numbers = keep_matching(texts, _NUMBER)
    fits = rf"^[+-]?0*\d{{0,{kind.precision - kind.scale}}}(?:\.\d{{0,{kind.scale}}})?$"
    easy = pc.match_substring_regex(numbers, fits)
    if pc.all(easy).as_py() is not False:
        return _cast_texts(numbers, kind, partial(_parse_decimal, kind=kind))
    converted = _cast_texts(
        pc.if_else(easy, numbers, None), kind, partial(_parse_decimal, kind=kind)
    )
    difficult = pc.if_else(easy, None, numbers).to_pylist()
    exact = list[Decimal | None]()
    for text in difficult:
        exact.append(None if text is None else _parse_decimal(text, kind))
    return pc.coalesce(converted, pa.chunked_array([pa.array(exact, kind)]))


def _parse_decimal(text: str, kind: pa.Decimal128Type) -> Decimal | None:
    """Return the number in a text; None if the type can't hold the number exactly."""
    context = Context(kind.precision, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
    context.traps[InvalidOperation] = True
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -kind.scale)), context=context)
    except ArithmeticError:
        return None


def _cast_texts(
    texts: _Texts,
    kind: pa.DataType,
    parse_alone: "Callable[[str], Any] | None" = None,
) -> "pa.ChunkedArray[Any]":
    """Parse texts with Arrow. A text that Arrow can't parse, such as February 30, becomes null.

    Args:
        parse_alone: parses a text that Arrow can't parse. The result replaces the null.
    """
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            text = texts[0].as_py()
            return pa.chunked_array(
                [pa.array([None if parse_alone is None else parse_alone(text)], kind)]
            )
        half = len(texts) // 2
        parts = [_cast_texts(part, kind, parse_alone) for part in (texts[:half], texts[half:])]
        chunks = parts[0].chunks + parts[1].chunks
        return pa.chunked_array(chunks, kind)


def _decode_base64_text(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        decoded = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    # A text that is not the canonical encoding of these bytes may have another meaning.
    if base64.b64encode(decoded).decode() == text:
        return decoded
    return None


def _decode_utf8_value(value: bytes | None) -> str | None:
    try:
        if value is None:
            return None
        return value.decode()
    except UnicodeDecodeError:
        return None
