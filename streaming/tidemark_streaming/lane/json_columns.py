"""Decode JSON with Spark's expressions, the only way in its real-time mode.

Spark's parser accepts texts whose value is not the one that it returns. A result is therefore
accepted only if the text provably has that value. Every other record is a dead letter. An ingest,
which has its own decoder, accepts more: numbers with an exponent in a DECIMAL, times with an offset
but without seconds, names and numbers of any length.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.payloads.json_values import NOT_AN_OBJECT
from tidemark_streaming.payloads.payload import misfit_reason
from tidemark_streaming.payloads.text_values import OFFSET

_CORRUPT = "_corrupt"
"""The column with the text that does not fit."""

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?"
_NO_NUMBER = r"^(NaN|[+-]?(Infinity|INF))$"


def decode_json(
    rows: DataFrame, text: Column, columns: Mapping[str, str], options: Mapping[str, str]
) -> DataFrame:
    """Return rows with `event`, a struct of the columns, and `reason`, why a text can't be decoded
    (else null).

    Args:
        text: null if the record has no value.
        columns: their names and Spark DDL types.
        options: Spark's options for JSON.
    """
    told = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(text, _ddl({**columns, _CORRUPT: "STRING"}), told)
    plain = F.from_json(text, _ddl(dict.fromkeys(columns, "STRING")), told)
    # The parser reads only the first of several values in a text. This check requires exactly one.
    whole = F.size(F.from_json(F.concat(F.lit("["), text, F.lit("]")), "ARRAY<STRING>")) == 1
    rows = rows.withColumn("event", parsed)
    misfits = [
        F.when(
            plain[name].isNotNull()
            & ~F.coalesce(_has_value(plain[name], name, kind, options), F.lit(False)),
            F.lit(misfit_reason(name, kind)),
        )
        for name, kind in columns.items()
    ]
    whole = F.is_valid_utf8(text) & F.coalesce(whole, F.lit(False))
    is_object = F.isnotnull("event") & F.isnull(f"event.{_CORRUPT}")
    refused = F.when(~whole, F.lit(NOT_AN_OBJECT))
    no_object = F.when(~is_object, F.lit(NOT_AN_OBJECT))
    reason = F.coalesce(refused, *misfits, no_object)
    return rows.withColumn("reason", F.when(text.isNotNull(), reason))


def _has_value(plain: Column, name: str, kind: str, options: Mapping[str, str]) -> Column:
    """Return whether a text provably has the column's value."""
    value, kind = F.col(f"event.`{name}`"), kind.replace(" ", "").upper()
    found = F.isnotnull(value)
    if kind.startswith("TIMESTAMP") and "timestampFormat" not in options:
        offset = "" if kind == "TIMESTAMP_NTZ" else f"{OFFSET}?"
        return found & plain.rlike(f"^{_DAY}([T ]{_TIME}{offset})?$")
    if kind == "DATE" and "dateFormat" not in options:
        return found & plain.rlike(f"^{_DAY}$")
    if kind.startswith("DECIMAL"):
        _, _, scale = kind.rstrip(")").partition(",")
        return found & plain.rlike(rf"^[+-]?[0-9]+([.][0-9]{{0,{int(scale or 0)}}}0*)?$")
    if kind in ("DOUBLE", "FLOAT"):
        number = F.abs(value) < float("inf")
        zero = (value != 0) | plain.rlike("^-?[0.]+([eE].*)?$")
        return found & ((number & zero) | plain.rlike(_NO_NUMBER))
    return found


def column(name: str, kind: str, source: Source) -> Column:
    """Return a column of a source, for decoded rows."""
    if isinstance(source.mask.get(name), Drop):
        return F.lit(None).cast(kind)
    if name not in RECORD:
        return F.col(f"event.`{source.field_of(name)}`")
    if name == "kafka_topic_partition":
        return F.concat_ws("-", "topic", "partition")
    return F.col(name.removeprefix("kafka_")).cast(kind)


def header(name: str | None) -> Column:
    """Return the first value of a header as text. It is null if `name` is None, or the headers
    can't be read."""
    if name is None:
        return F.lit(None).cast("string")
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
