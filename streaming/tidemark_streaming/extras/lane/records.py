"""Process a lane's records as a DataFrame, either a stream or a batch."""

from collections.abc import Mapping

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

READ_FROM = "read_from"
REASON = "reason"
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
    fields = dict[str, str]()
    # Why a value of the record does not fit its column.
    record_faults = list[Column]()
    for name, kind in source.record_columns.items():
        if name in dropped:
            continue
        if name in RECORD:
            record_faults.append(_record_fault(name, kind))
        else:
            fields[source.field_of(name)] = kind
    rows = records.withColumnsRenamed(_NAMES)
    type_names = list[Column]()
    for number, name in _TYPES.items():
        type_names += [F.lit(number), F.lit(name)]
    type_name = F.create_map(type_names)[F.col("timestamp_type")]
    rows = rows.withColumn("timestamp_type", type_name)
    rows = decode_json(rows, F.col("value").cast("string"), fields, connector.options)
    record_id = F.concat_ws("-", "topic", "partition", "offset")
    correlation = F.coalesce(_first_header(connector.correlation), record_id)
    columns = list[Column]()
    for name, kind in source.record_columns.items():
        value = _mask_value(_column_expression(name, lane), kind, lane, name)
        columns.append(value.alias(name))
    columns.append(record_id.alias(READ_FROM))
    columns.append(_mask_value(correlation, "STRING", lane, CORRELATION).alias(CORRELATION))
    columns.append(F.coalesce(REASON, *record_faults).alias(REASON))
    # The original bytes would have the values that the source protects.
    original = F.lit(None).cast("binary") if source.mask else F.col("value")
    columns.append(original.alias(_VALUE))
    rows = rows.select(columns)
    if source.computed:
        rows = _with_computed_columns(rows, lane)
    if not lane.valid:
        return rows
    faults = [F.col(REASON)]
    for condition in lane.valid:
        message = f"The record does not meet the condition: {condition}."
        faults.append(F.when(~F.expr(condition), F.lit(message)))
    return rows.withColumn(REASON, F.coalesce(*faults))


def _with_computed_columns(rows: DataFrame, lane: Lane) -> DataFrame:
    source = lane.source
    columns = list[Column | str]()
    for name in source.record_columns:
        if name not in source.transient_fields:
            columns.append(F.col(f"`{name}`"))
    for name, value in computed_columns(source).items():
        columns.append(_mask_value(value, source.columns[name], lane, name).alias(name))
    reason = F.coalesce(F.col(REASON), failure_reason(source)).alias(REASON)
    columns += [READ_FROM, CORRELATION, reason, _VALUE]
    return rows.select(columns)


def output_records(rows: DataFrame, lane: Lane, lookups: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records to write for decoded rows: `topic`, `key`, `value` and `headers`.

    Args:
        lookups: the lookup tables that the lane's function takes in addition to the rows, by
            name.
    """
    columns = [F.col(f"`{name}`") for name in lane.source.columns]
    columns += [F.col(name) for name in _HEADERS]
    for name, kind in ARRIVAL_COLUMNS.items():
        if name not in _HEADERS:
            # A lane's record is part of no arrival.
            columns.append(F.lit(None).cast(kind).alias(name))
    good = rows.where(F.isnull(REASON)).select(columns)
    small = {name: F.broadcast(table) for name, table in lookups.items()}
    result = lane.prepare(good, **small)
    _check_result(result, lane)
    fields = list[Column]()
    for name in result.columns:
        if name not in ARRIVAL_COLUMNS and name not in RECORD:
            fields.append(F.col(f"`{name}`"))
    return result.select(
        _choose_topic(lane).alias("topic"),
        _record_key(lane).cast("string").cast("binary").alias("key"),
        exact_json(fields).cast("binary").alias("value"),
        _header_array(*_HEADERS).alias("headers"),
    )


def _record_key(lane: Lane) -> Column:
    """Return the key of the record to write; null if neither the lane nor the source has one."""
    if lane.key:
        return F.col(f"`{lane.key}`")
    if "kafka_key" in lane.source.columns:
        return F.col("kafka_key")
    return F.lit(None)


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
    needed = list[str](_HEADERS)
    for column in (lane.route, lane.key):
        if column is not None:
            needed.append(column)
    missing = [column for column in needed if column not in result.columns]
    if missing:
        raise DefinitionError(
            f"{lane}: the result of its function does not have the column '{missing[0]}'; its "
            f"columns are {', '.join(result.columns)}. It must keep {', '.join(needed)}: add "
            "columns instead of selecting a few."
        )


def _choose_topic(lane: Lane) -> Column:
    topic = F.lit(lane.topics_by_route[OTHERS].name)
    if lane.route is None:
        return topic
    value = F.col(f"`{lane.route}`").cast("string")
    for route, sink in lane.topics_by_route.items():
        if route != OTHERS:
            topic = F.when(value == route, sink.name).otherwise(topic)
    return topic


def _header_array(*names: str) -> Column:
    headers = list[Column]()
    for name in names:
        value = F.col(name).cast("binary")
        headers.append(F.struct(F.lit(name).alias("key"), value.alias("value")))
    return F.array(headers)


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


_MEMBER_NAMES = name_helper("names")
_TEXTS = name_helper("texts")
_MEMBERS = name_helper("members")


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
    faults = [json_members.find_fault(text, names, texts, columns)]
    for name, kind in columns.items():
        is_lost = F.isnotnull(written[name]) & F.isnull(F.col("event")[name])
        faults.append(F.when(is_lost, misfit_reason(name, kind)))
    rows = rows.withColumn("reason", F.when(F.isnotnull(text), F.coalesce(*faults)))
    return rows.drop(_MEMBER_NAMES, _TEXTS, _MEMBERS)


def _build_struct(columns: Mapping[str, Column]) -> Column:
    return F.struct([value.alias(name) for name, value in columns.items()])
