"""Process a lane's records as a DataFrame, either a stream or a batch."""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute.compare import exact_json
from tidemark.define.helper_columns import name_helper
from tidemark.define.protection import MASKED, Drop, Mask, Protection
from tidemark.define.source import CORRELATION
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark_streaming.extras.lane import json_members
from tidemark_streaming.extras.lane.definition import OTHERS, Lane
from tidemark_streaming.extras.lane.exact_values import value_of
from tidemark_streaming.ingest.computed_columns import computed_columns, failure_reason
from tidemark_streaming.kafka.decode import RECORD, WRITTEN_FIELDS
from tidemark_streaming.payloads.payload import misfit_reason
from tidemark_streaming.payloads.text_values import TimeFormats

READ_FROM, REASON = "read_from", "reason"
_VALUE = name_helper("value")
_HEADERS = (READ_FROM, CORRELATION)
_NAMES = {"timestampType": "timestamp_type"}
_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def decode_records(records: DataFrame, lane: Lane) -> DataFrame:
    """Decode records of Spark's Kafka connector into the columns of their source, protected as the
    source declares.

    The result also has `read_from`, `correlation_id`, the original value (null if the source has
    protected columns), and `reason`: why a record is a dead letter, or null if it is not a dead
    letter.
    """
    source = lane.source
    connector = lane.connector
    dropped = {name for name, way in source.mask.items() if isinstance(way, Drop)}
    fields = {
        source.field_of(name): kind
        for name, kind in source.record_columns.items()
        if name not in RECORD and name not in dropped
    }
    rows = records.withColumnsRenamed(_NAMES)
    kind = F.create_map(*(F.lit(x) for pair in _TYPES.items() for x in pair))
    rows = rows.withColumn("timestamp_type", kind[F.col("timestamp_type")])
    rows = decode_json(rows, F.col("value").cast("string"), fields, connector.options)
    record_id = F.concat_ws("-", "topic", "partition", "offset")
    correlation = F.coalesce(_first_header(connector.correlation), record_id)
    columns = {
        n: _mask_value(_column_expression(n, lane), t, lane, n)
        for n, t in source.record_columns.items()
    }
    lost = [
        _record_fault(name, kind)
        for name, kind in source.record_columns.items()
        if name in RECORD and name not in dropped
    ]
    rows = rows.select(
        *(value.alias(name) for name, value in columns.items()),
        record_id.alias(READ_FROM),
        _mask_value(correlation, "STRING", lane, CORRELATION).alias(CORRELATION),
        F.coalesce(REASON, *lost).alias(REASON),
        F.lit(None).cast("binary").alias(_VALUE) if source.mask else F.col("value").alias(_VALUE),
    )
    if source.computed:
        rows = _with_computed_columns(rows, lane)
    faults = [
        F.when(~F.expr(condition), F.lit(f"The record does not meet the condition: {condition}."))
        for condition in lane.valid
    ]
    if faults:
        return rows.withColumn(REASON, F.coalesce(REASON, *faults))
    return rows


def _with_computed_columns(rows: DataFrame, lane: Lane) -> DataFrame:
    source = lane.source
    columns = [F.col(f"`{n}`") for n in source.record_columns if n not in source.transient_fields]
    computed = [
        _mask_value(value, source.columns[name], lane, name).alias(name)
        for name, value in computed_columns(source).items()
    ]
    reason = F.coalesce(F.col(REASON), failure_reason(source)).alias(REASON)
    return rows.select(*columns, *computed, READ_FROM, CORRELATION, reason, _VALUE)


def output_records(rows: DataFrame, lane: Lane, lookups: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records to write for decoded rows: `topic`, `key`, `value` and `headers`.

    Args:
        lookups: the lookup tables that the lane's function takes in addition to the rows, by
            name.
    """
    facts = {n: F.lit(None).cast(t) for n, t in ARRIVAL_COLUMNS.items() if n not in _HEADERS}
    columns = [F.col(f"`{name}`") for name in (*lane.source.columns, *_HEADERS)]
    good = rows.where(F.isnull(REASON)).select(*columns, *(c.alias(n) for n, c in facts.items()))
    small = {name: F.broadcast(table) for name, table in lookups.items()}
    result = lane.prepare(good, **small)
    _check_result(result, lane)
    fields = [c for c in result.columns if c not in ARRIVAL_COLUMNS and c not in RECORD]
    key = lane.key or ("kafka_key" if "kafka_key" in lane.source.columns else None)
    return result.select(
        _choose_topic(lane).alias("topic"),
        (F.lit(None) if key is None else F.col(f"`{key}`"))
        .cast("string")
        .cast("binary")
        .alias("key"),
        exact_json([F.col(f"`{c}`") for c in fields]).cast("binary").alias("value"),
        _header_array(*_HEADERS).alias("headers"),
    )


def dead_letters(rows: DataFrame, lane: Lane) -> DataFrame:
    """Return the records for the topic of dead letters.

    The value of a record is its original bytes, or null if the source has protected columns. The
    headers have the original position, the correlation id and the reason.
    """
    return rows.where(F.isnotnull(REASON)).select(
        F.lit(lane.dead_letter_topic.name).alias("topic"),
        F.lit(None).cast("binary").alias("key"),
        F.col(_VALUE).alias("value"),
        _header_array(REASON, *_HEADERS).alias("headers"),
    )


def _check_result(result: DataFrame, lane: Lane) -> None:
    needed = [*_HEADERS, *(c for c in (lane.route, lane.key) if c is not None)]
    missing = [c for c in needed if c not in result.columns]
    if missing:
        raise DefinitionError(
            f"{lane}: the result of its function does not have the column '{missing[0]}'; its "
            f"columns are {', '.join(result.columns)}. It must keep {', '.join(needed)}: add "
            "columns instead of selecting a few."
        )


def _choose_topic(lane: Lane) -> Column:
    default_topic = F.lit(lane.topics_by_route[OTHERS].name)
    if lane.route is None:
        return default_topic
    value = F.col(f"`{lane.route}`").cast("string")
    named = [(v, t.name) for v, t in lane.topics_by_route.items() if v != OTHERS]
    return reduce(
        lambda chosen, route: F.when(value == route[0], route[1]).otherwise(chosen),
        named,
        default_topic,
    )


def _header_array(*names: str) -> Column:
    pairs = (F.struct(F.lit(n).alias("key"), F.col(n).cast("binary").alias("value")) for n in names)
    return F.array(*pairs)


def _column_expression(name: str, lane: Lane) -> Column:
    """Return the expression of a source's column on rows that `decode_json` has returned."""
    kind = lane.source.record_columns[name]
    way = lane.source.mask.get(name)
    if isinstance(way, Drop):
        return F.lit(None).cast(kind)
    if name in RECORD:
        return _record_column(name, kind)
    return F.col("event")[lane.source.field_of(name)]


def _mask_value(value: Column, kind: str, lane: Lane, name: str) -> Column:
    way: Protection | None = lane.source.mask.get(name)
    if isinstance(way, Drop):
        return F.lit(None).cast(kind)
    if isinstance(way, Mask):
        keep = F.lit(way.keep_last)
        last_characters = F.when((keep > 0) & (F.length(value) >= 2 * keep), F.right(value, keep))
        masked = F.concat(F.lit(MASKED), F.coalesce(last_characters, F.lit("")))
        return F.when(F.isnotnull(value), masked)
    return value


_REPLACEMENT = "\ufffd"
"""The character that Kafka's Java client puts into the name of a header that is not UTF-8."""


def _record_column(name: str, kind: str) -> Column:
    """Return the expression that computes a column of `RECORD` from a row of Spark's Kafka reader.

    Args:
        kind: the column's Spark DDL type, as the source declares it.
    """
    if name == "kafka_topic_partition":
        return F.concat_ws("-", "topic", "partition")
    if name == "kafka_key":
        key = F.col("key").cast(kind)
        if kind.strip().upper() == "STRING":
            return F.when(F.is_valid_utf8(key), key)
        return key
    if name == "kafka_timestamp":
        is_in_range = F.unix_micros("timestamp").between(BEGINNING, INFINITY)
        return F.when(F.isnotnull("timestamp_type") & is_in_range, F.col("timestamp"))
    if name == "kafka_headers":
        return _read_headers().cast(kind)
    return F.col(name.removeprefix("kafka_")).cast(kind)


def _record_fault(name: str, kind: str) -> Column:
    """Return the reason of a dead letter if a column of `RECORD` is null although the record has a
    value for it; else null."""
    if name not in WRITTEN_FIELDS:
        return F.lit(None).cast("STRING")
    is_lost = F.isnotnull(WRITTEN_FIELDS[name]) & F.isnull(_record_column(name, kind))
    return F.when(is_lost, F.lit(misfit_reason(name, kind)))


def _first_header(name: str | None) -> Column:
    """Return the first value of a header as text. It is null if `name` is None, the value is not
    UTF-8, or the headers can't be read."""
    if name is None:
        return F.lit(None).cast("STRING")
    headers = F.filter(_read_headers(), lambda header: header["key"] == name)
    value = F.try_element_at(headers, F.lit(1))["value"].cast("STRING")
    return F.when(F.is_valid_utf8(value), value)


def _read_headers() -> Column:
    unreadable = F.exists("headers", lambda header: F.contains(header["key"], F.lit(_REPLACEMENT)))
    return F.when(F.isnull("headers") | ~unreadable, F.col("headers"))


_MEMBER_NAMES, _TEXTS, _MEMBERS = name_helper("names"), name_helper("texts"), name_helper("members")


def decode_json(
    rows: DataFrame, text: Column, columns: Mapping[str, str], options: Mapping[str, str]
) -> DataFrame:
    """Return rows with two more columns: `event`, a struct of the decoded columns, and `reason`,
    why the text can't be decoded (else null).

    A text is accepted only if the decoder of an ingest accepts the text and returns the same
    values.

    Args:
        text: the JSON text of each row; null if the record has no value.
        columns: the fields to decode, with their Spark DDL types.
        options: as for `Json`.
    """
    formats = TimeFormats.from_options(options)
    names = F.col(_MEMBER_NAMES)
    texts = F.col(_TEXTS)
    # Each step is a separate projection, so that Spark computes the result of a step only once.
    rows = rows.withColumns(
        {_MEMBER_NAMES: json_members.member_names(text), _TEXTS: json_members.member_texts(text)}
    )
    members = {name: json_members.extract_member(name, names, texts) for name in columns}
    rows = rows.withColumn(_MEMBERS, _build_struct(members))
    written = {name: F.col(_MEMBERS)[name] for name in columns}
    values = {name: value_of(written[name], kind, formats) for name, kind in columns.items()}
    rows = rows.withColumn("event", _build_struct(values))
    misfits = (
        F.when(
            F.isnotnull(written[name]) & F.isnull(F.col("event")[name]), misfit_reason(name, kind)
        )
        for name, kind in columns.items()
    )
    fault = json_members.find_fault(text, names, texts, columns)
    rows = rows.withColumn("reason", F.when(F.isnotnull(text), F.coalesce(fault, *misfits)))
    return rows.drop(_MEMBER_NAMES, _TEXTS, _MEMBERS)


def _build_struct(columns: Mapping[str, Column]) -> Column:
    return F.struct(*(value.alias(name) for name, value in columns.items()))
