"""Start and find a lane's queries: a query in real-time mode for its records, and a query in
micro-batches for dead letters.

Both queries are in one session of the lane's Spark, where any process finds them by name. Only
their checkpoints store the lane's position. After a stop or a kill, the queries write the records
since their last checkpoints again. Spark does not lose records, but its Kafka writer is not
transactional.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from confluent_kafka.cimpl import NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.base.errors import DataError, DefinitionError, EngineError, summarize_error
from tidemark.base.instants import parse_duration, parse_instant
from tidemark.compute.events import plan_check
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.store.event_log import lookup_tables
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.extras.lane.checkpoints import recreated_topics
from tidemark_streaming.extras.lane.definition import Lane
from tidemark_streaming.extras.lane.options import connection_options, isolation_option
from tidemark_streaming.extras.lane.records import dead_letters, decode_records, output_records
from tidemark_streaming.ingest.computed_columns import check_types
from tidemark_streaming.kafka.cluster import Cluster

Trigger = Literal["real-time", "micro-batch"]

RECORDS = "records"
LETTERS = "dead_letters"
_PARTS = (RECORDS, LETTERS)

_LETTERS_EVERY = "5 seconds"
"""The trigger interval of the query for dead letters."""

_START_SECONDS = 10.0
"""If a query has not ended within these seconds, Spark has accepted it."""

_REFUSED = re.compile(r"OPERATOR_OR_SINK_NOT_IN_ALLOWLIST.*?(?P<what>\w+)Exec", re.DOTALL)
_PASSING = re.compile(
    r"kafka\.common\.errors\.(Timeout|Network|Disconnect|BrokerNotAvailable|LeaderNotAvailable)"
)
"""Errors of Kafka's client for brokers that do not answer."""
_EXPIRED = re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRange|data may have been lost", re.IGNORECASE)


@dataclass(frozen=True)
class Queries:
    """The queries of a running lane: for its records, and for its dead letters."""

    records: StreamingQuery
    letters: StreamingQuery

    def find_fault(self) -> EngineError | None:
        """Return why a query has ended; None while both queries run."""
        has_ended = False
        for query in (self.records, self.letters):
            if query.isActive:
                continue
            has_ended = True
            failure = query.exception()
            if failure is not None:
                return EngineError(
                    f"The lane ended: {_failure_reason(failure)}",
                    retriable=_PASSING.search(str(failure)) is not None,
                )
        if has_ended:
            return EngineError("Another process stopped the lane.")
        return None

    def stop(self) -> None:
        """Stop both queries. After a restart, they write the records since their last checkpoints
        again."""
        for query in (self.records, self.letters):
            query.stop()


def read_available(spark: SparkSession, lane: Lane) -> DataFrame:
    """Return all available records of the lane's topics as a batch."""
    return spark.read.format("kafka").options(**_source_options(lane)).load()


def start_queries(
    warehouse: Warehouse, lane: Lane, home: Path, trigger: Trigger = "real-time"
) -> Queries:
    """Start the lane's queries in the session of the warehouse, from their checkpoints.

    Output topics that do not exist are created.

    Args:
        home: the folder of the lane, which contains the checkpoints.

    Raises:
        EngineError: the lane is already running, or Spark refuses a query.
        DataError: an input topic was recreated since the last checkpoint.
        DefinitionError: the function or a condition of the lane is not valid.
    """
    spark = warehouse.spark
    if find_queries(spark, lane) is not None:
        raise EngineError(
            f"{lane} is already running: stop it with `tidemark lane {lane.name} --stop`."
        )
    for query in _find_active(spark, lane).values():
        # One query may have ended without the other.
        query.stop()
    tables = _read_lookups(warehouse, lane)
    check_lane(spark, lane, tables)
    letters_topic = lane.dead_letter_topic
    topics = {t.name: NewTopic(t.name, t.partitions, -1) for t in lane.output_topics}
    Cluster(letters_topic.broker_addresses, letters_topic.client).create_topics(
        list(topics.values())
    )
    _check_topics(lane, home)
    streamed = spark.readStream.format("kafka").options(**_source_options(lane)).load()
    rows = decode_records(streamed, lane)
    checkpoint_interval = f"{parse_duration(lane.checkpoint) // 1000} milliseconds"
    records_trigger = {"processingTime": "0 seconds"}
    if trigger == "real-time":
        records_trigger = {"realTime": checkpoint_interval}
    letters_trigger = {"processingTime": _LETTERS_EVERY}
    outputs = output_records(rows, lane, tables)
    records = _start_query(outputs, lane, RECORDS, home, records_trigger)
    letters = _start_query(dead_letters(rows, lane), lane, LETTERS, home, letters_trigger)
    queries = Queries(records, letters)
    _await_begun(queries)
    return queries


def find_queries(spark: SparkSession, lane: Lane) -> Queries | None:
    """Return the lane's queries; None unless both run in this session."""
    active = _find_active(spark, lane)
    if len(active) == len(_PARTS):
        return Queries(active[RECORDS], active[LETTERS])
    return None


def check_lane(spark: SparkSession, lane: Lane, lookups: Mapping[str, DataFrame]) -> None:
    """Refuse a lane with a function that does not work record by record, or with a condition that
    is not boolean.

    Args:
        lookups: the lookup tables that the function takes, by name.
    """
    fields = ", ".join(f"`{name}` {kind}" for name, kind in lane.source.record_columns.items())
    check_types(lane.source, spark.createDataFrame([], fields))
    kinds = {**lane.source.columns, **ARRIVAL_COLUMNS}
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    rows = spark.createDataFrame([], ddl).alias(plan_check.STREAM)
    for condition in lane.valid:
        try:
            kind = rows.select(F.expr(condition)).schema[0].dataType.simpleString()
        except PySparkException as error:
            raise DefinitionError(
                f"{lane} can't evaluate the condition '{condition}': {_failure_reason(error)}"
            ) from None
        if kind != "boolean":
            raise DefinitionError(
                f"{lane} needs a boolean condition, but '{condition}' has the type {kind}."
            )
    named = {name: table.alias(plan_check.LOOKUP) for name, table in lookups.items()}
    fault = plan_check.find_misuse(rows, lane.prepare(rows, **named))
    if fault is not None:
        raise DefinitionError(
            f"{lane}: its function {fault}. A lane processes one record at a time and keeps no "
            "state, so its function must work row by row: add, cast, filter, explode, or join with "
            "a lookup table. For everything else, use a windowed asset."
        )


def _failure_reason(failure: PySparkException) -> str:
    text = str(failure)
    if refused := _REFUSED.search(text):
        return (
            f"its function needs {refused['what']}, which Spark's real-time mode does not support: "
            "it supports SQL functions, and joins only with lookup tables that fit in memory. Use "
            "the trigger micro-batch instead."
        )
    if _EXPIRED.search(text):
        return (
            "Kafka deleted records before the lane read them: the topic's retention expired, or "
            "the topic was recreated. Delete the lane's checkpoints to restart all topics of the "
            "lane at `start`; records of the others may be written again."
        )
    return f"{summarize_error(failure)}."


def _find_active(spark: SparkSession, lane: Lane) -> dict[str, StreamingQuery]:
    active = {query.name: query for query in spark.streams.active}
    lane_queries = dict[str, StreamingQuery]()
    for part in _PARTS:
        name = _query_name(lane, part)
        if name in active:
            lane_queries[part] = active[name]
    return lane_queries


def _await_begun(queries: Queries) -> None:
    """Wait until Spark has accepted the queries. If a query ends before, stop both and raise its
    error."""
    begun = time.monotonic()
    while time.monotonic() - begun < _START_SECONDS:
        if fault := queries.find_fault():
            queries.stop()
            raise fault
        # Spark plans both queries at the same time, and only the query for dead letters reports
        # when its plan is complete.
        if queries.letters.status["message"].startswith("Waiting"):
            return
        time.sleep(0.1)


def _start_query(
    rows: DataFrame, lane: Lane, part: str, home: Path, trigger: Mapping[str, str]
) -> StreamingQuery:
    writer = (
        rows.writeStream.format("kafka").queryName(_query_name(lane, part)).outputMode("update")
    )
    writer = writer.options(
        **connection_options(lane.dead_letter_topic.broker_addresses, lane.dead_letter_topic.client)
    )
    writer = writer.option("checkpointLocation", str(home / "checkpoints" / part))
    return writer.trigger(**trigger).start()


def _source_options(lane: Lane) -> dict[str, str]:
    connector = lane.connector
    options = {
        **connection_options(connector.broker_addresses, connector.client),
        **isolation_option(connector.client),
        "includeHeaders": "true",
        "failOnDataLoss": str(not connector.accept_loss).lower(),
    }
    has_patterns = any(topic.startswith("^") for topic in connector.topics)
    if has_patterns:
        # Spark takes either names or one pattern, so names become patterns, too.
        patterns = list[str]()
        for topic in connector.topics:
            pattern = topic[1:] if topic.startswith("^") else re.escape(topic)
            patterns.append(f"({pattern})")
        options["subscribePattern"] = "|".join(patterns)
    else:
        options["subscribe"] = ",".join(connector.topics)
    if connector.start in ("earliest", "latest"):
        options["startingOffsets"] = connector.start
    else:
        options["startingTimestamp"] = str(parse_instant(connector.start) // 1000)
    return options


def _check_topics(lane: Lane, home: Path) -> None:
    """Refuse to start if input topics were recreated since the last checkpoint."""
    connector = lane.connector
    available = Cluster(connector.broker_addresses, connector.client).read_topics(connector.topics)
    if recreated := recreated_topics(home, {name: topic.id for name, topic in available.items()}):
        raise DataError(
            f"{lane} can't continue: topic '{recreated[0]}' was deleted and recreated since its "
            f"last checkpoint, so the stored offsets do not fit it. Delete {home / 'checkpoints'} "
            f"to restart all topics of the lane at `start` ('{connector.start}'); records of its "
            "other topics may then be written a second time."
        )


def _read_lookups(warehouse: Warehouse, lane: Lane) -> dict[str, DataFrame]:
    if not lane.lookup_names:
        return {}
    versions = lookup_tables.current_versions(warehouse, lane.source)
    return {
        n: lookup_tables.read_lookup_table(warehouse, lane.source, n, versions[n])
        for n in lane.lookup_names
    }


def _query_name(lane: Lane, part: str) -> str:
    return f"tidemark lane {lane.name} {part}"
