"""The connectors of NEXMark: 100,000 generated events, played in the order of arrival."""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from benchmarks.nexmark.domain import sources
from benchmarks.nexmark.domain.generator import Events
from tidemark_streaming.files.recording import Recording

EVENTS = Events()

persons = Recording(sources.persons, lambda: EVENTS.persons).to_ingestion
auctions = Recording(sources.auctions, lambda: EVENTS.auctions).to_ingestion


def _channel_names(spark: SparkSession) -> DataFrame:
    """Return the bounded side input of query 13: a name for each number from 0 to 9,999."""
    return spark.sql("SELECT id AS key, concat('name ', id) AS value FROM range(10000)")


bids = replace(
    Recording(sources.bids, lambda: EVENTS.bids).to_ingestion,
    lookups={"channel_names": _channel_names},
)
