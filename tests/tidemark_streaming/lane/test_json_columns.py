"""A lane's decoder of JSON, beside that of an ingest."""

import json

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.store.rows import INSTANT
from tidemark_streaming.lane import json_columns
from tidemark_streaming.payloads import Json

OFFSETS = ["", "Z", "+00:00", "+02:00", "+0200", "-02", "+14", "-17:59", "+1759", "+17"]
NO_OFFSETS = ["+18", "+18:00", "-23:59", "+24:00", "+2:00", "+020", "+02:0", "+02:60", " UTC", "z"]


def test_a_lane_and_an_ingest_accept_the_same_time_offsets(spark: SparkSession) -> None:
    texts = [json.dumps({"at": f"2026-01-01T10:15:30{o}"}) for o in (*OFFSETS, *NO_OFFSETS)]
    ingested = Json().decode(
        pa.chunked_array([pa.array([text.encode() for text in texts])]), {"at": "TIMESTAMP"}
    )
    rows = spark.createDataFrame([*enumerate(texts)], "n INT, text STRING")
    decoded = json_columns.decode_json(rows, F.col("text"), {"at": "TIMESTAMP"}, {}).orderBy("n")
    found = decoded.select("event.at", "reason").toArrow()
    assert (
        found["at"].cast(INSTANT).to_pylist()[: len(OFFSETS)]
        == (ingested.columns["at"].to_pylist()[: len(OFFSETS)])
    )
    refused = {n: reason for n, reason in enumerate(found["reason"].to_pylist()) if reason}
    assert refused == dict(ingested.reasons)
    assert list(refused) == list(range(len(OFFSETS), len(texts)))
