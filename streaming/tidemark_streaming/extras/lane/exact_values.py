"""Convert the original texts of JSON members to the types of columns, with Spark's expressions.

The expressions follow the rules of `payloads.text_values` and share its regular expressions. One
rule is stricter: a DECIMAL and a count since 1970 must not have an exponent. If Spark's conversion
might change the value of a text, the text is not converted: the result is null.
"""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.column_type import data_type
from tidemark_streaming.extras.lane.json_members import is_string, string_value
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.text_values import (
    DAY,
    WITH_OFFSET,
    WITHOUT_OFFSET,
    ZERO,
    Pattern,
    TimeFormats,
)
from tidemark_streaming.payloads.time_patterns import SHORTS

_NO_NUMBER = r'^(?i)"(?:nan|[+-]?inf(?:inity)?)"$'
_MONTHS = "janfebmaraprmayjunjulaugsepoctnovdec"
_HALF_DAY = "T((?i)[AP]M)([0-9]+):"
_TO_ONE_FORM = (
    (" ", "T"),
    (f"^{DAY}$", r"\1T00:00:00"),
    (r"(T\d\d:\d\d)(Z|[+-].*|)$", r"\1:00\2"),
    (r"(T.*[+-]\d\d)$", r"\1:00"),
    (r"(T.*[+-]\d\d)(\d\d)$", r"\1:\2"),
)
"""Replacements that complete a time of ISO 8601, which may omit seconds and other parts."""


def value_of(text: Column, ddl: str, formats: TimeFormats) -> Column:
    """Return the value of a JSON member; null if its text is not exactly a value of the type."""
    kind = data_type(ddl)
    target = arrow_type(ddl)
    string = F.when(is_string(text), string_value(text))
    if pa.types.is_string(target):
        return F.when(is_string(text), string).otherwise(text)
    if pa.types.is_boolean(target):
        return F.when(text.isin("true", "false"), text == "true")
    if pa.types.is_integer(target):
        return _decode_integer(text, kind)
    if pa.types.is_floating(target):
        return _decode_float(text, kind)
    if pa.types.is_decimal(target):
        number = F.when(is_string(text), string).otherwise(text)
        fraction = rf"\d{{0,{target.scale}}}0*"
        fits = rf"^[+-]?(?:\d+(?:[.]{fraction})?|[.](?=\d){fraction})$"
        return _keep_matching(number, fits).try_cast(kind)
    if pa.types.is_binary(target):
        decoded = F.try_to_binary(string, F.lit("base64"))
        # Spark breaks long texts into lines.
        return F.when(F.translate(F.base64(decoded), "\r\n", "") == string, decoded)
    if pa.types.is_timestamp(target) and formats.are_counts:
        return _parse_count(F.when(is_string(text), string).otherwise(text), formats).cast(kind)
    pattern = formats.pattern_of(target)
    if pattern is not None:
        string = _as_iso(string, pattern)
    if pa.types.is_date(target):
        return _from_year_1(_keep_matching(string, f"^{DAY}$")).try_cast(kind)
    return _decode_time(
        _replace_all(string, [(formats.droppable_digits, r"\1\2")]), kind, target, formats.zone
    )


def _decode_integer(text: Column, kind: DataType) -> Column:
    return _keep_matching(text, "^-?[0-9]+$").try_cast(kind)


def _decode_float(text: Column, kind: DataType) -> Column:
    number = F.when(~is_string(text), text).try_cast(kind)
    lost = (number == 0) & ~F.rlike(text, F.lit(_to_java_expression(ZERO)))
    name = F.replace(_keep_matching(text, _NO_NUMBER), F.lit('"'), F.lit(""))
    return F.coalesce(F.when((F.abs(number) < float("inf")) & ~lost, number), name.try_cast(kind))


def _parse_count(text: Column, formats: TimeFormats) -> Column:
    """Return numbers as instants: each number counts units of time since 1970, for example
    milliseconds, and may have a fraction, but no exponent.

    A number that is not a whole number of microseconds becomes null unless times are truncated, and
    so does one that is outside the years 1 to 9999.
    """
    number = _keep_matching(text, r"^[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)$")
    sign = F.regexp_extract(number, "^([+-]?)", 1)
    whole_digits = F.concat(sign, F.lit("0"), F.regexp_extract(number, "^[+-]?([0-9]*)", 1))
    fraction = F.regexp_extract(number, "[.]([0-9]*)", 1)
    places = max(formats.count_places, 0)
    digits = F.concat(whole_digits, F.rpad(fraction, places, "0")).try_cast("BIGINT")
    is_exact = F.rlike(F.substring(fraction, places + 1, F.length(fraction)), F.lit("^0*$"))
    # Truncated to the past, also before 1970.
    is_below = F.startswith(number, F.lit("-")) & ~is_exact
    digits = F.when(is_exact, digits).when(
        F.lit(formats.time_rules.is_truncating), F.try_subtract(digits, is_below.cast("BIGINT"))
    )
    if formats.count_places >= 0:
        return F.timestamp_micros(F.when(digits.between(BEGINNING, INFINITY), digits))
    digits = F.when(digits.between(*formats.count_range), digits)
    is_later = (digits % 1000 < 0).cast("BIGINT")
    micros = F.call_function("div", digits, F.lit(1000)) - is_later
    is_whole = F.lit(formats.time_rules.is_truncating) | (digits % 1000 == 0)
    return F.timestamp_micros(F.when(is_whole, micros))


def _decode_time(
    text: Column, kind: DataType, target: pa.TimestampType, zone: str | None
) -> Column:
    local = _replace_all(_keep_matching(text, WITHOUT_OFFSET), _TO_ONE_FORM)
    if target.tz is None:
        return _from_year_1(local).try_cast(kind)
    zoned = _replace_all(_keep_matching(text, WITH_OFFSET), _TO_ONE_FORM)
    if zone is not None:
        local = F.concat(local, F.lit("Z" if zone == "UTC" else zone))
        zoned = F.coalesce(zoned, local)
    instant = zoned.try_cast(kind)
    return F.when(F.unix_micros(instant).between(BEGINNING, INFINITY), instant)


def _as_iso(text: Column, pattern: Pattern) -> Column:
    """Return a time in the form of ISO 8601; null if the text does not match the pattern."""
    iso = _keep_matching(text, pattern.expression)
    iso = _replace_all(iso, [(pattern.expression, pattern.iso)])
    if pattern.has_month_names:
        name = F.lower(F.regexp_extract(iso, "-([A-Za-z]{3})[A-Za-z]*-", 1))
        number = (F.instr(F.lit(_MONTHS), name) + 2) / 3
        month = F.format_string("-%02d-", number.cast("INT"))
        iso = F.regexp_replace(iso, F.lit("-[A-Za-z]+-"), month)
    if pattern.has_half_days:
        half = F.lower(F.regexp_extract(iso, _HALF_DAY, 1))
        hour = F.regexp_extract(iso, _HALF_DAY, 2).try_cast("INT") % 12
        hour = hour + F.when(half == "pm", 12).otherwise(0)
        iso = F.regexp_replace(iso, F.lit(_HALF_DAY), F.format_string("T%02d:", hour))
    return _replace_all(iso, SHORTS)


def _from_year_1(text: Column) -> Column:
    return F.when(~F.startswith(text, F.lit("0000")), text)


def _keep_matching(text: Column, expression: str) -> Column:
    return F.when(F.rlike(text, F.lit(_to_java_expression(expression))), text)


def _replace_all(text: Column, replacements: Iterable[tuple[str, str]]) -> Column:
    for expression, replacement in replacements:
        text = F.regexp_replace(
            text, _to_java_expression(expression), replacement.replace("\\", "$")
        )
    return text


def _to_java_expression(expression: str) -> str:
    """Return a regular expression with the same meaning for Java, whose `$` also matches before a
    final line break.
    """
    if expression.endswith("$"):
        return rf"{expression[:-1]}\z"
    return expression
