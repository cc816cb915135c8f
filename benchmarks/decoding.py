"""Compare Tidemark's reader of Avro with fastavro's, and measure decoding as a whole.

Both readers read the same records with the schema that wrote them, in one thread. `decode` is what
an ingest calls: it also checks each value and builds Arrow columns.
"""

import argparse
import io
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pyarrow as pa
from rich.table import Table

from benchmarks.measuring.terminal import console
from tidemark_streaming.payloads import Avro

_FLAT: list[dict[str, Any]] = [
    {"name": "order_id", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "customer", "type": "long"},
    {"name": "amount", "type": "double"},
    {"name": "quantity", "type": "int"},
    {"name": "city", "type": ["null", "string"], "default": None},
    {"name": "paid", "type": "boolean"},
]
_ADDRESS: list[dict[str, Any]] = [
    {"name": "street", "type": "string"},
    {"name": "zip", "type": ["null", "int"], "default": None},
]
_NESTED: list[dict[str, Any]] = [
    *_FLAT,
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "address", "type": {"type": "record", "name": "Address", "fields": _ADDRESS}},
]
_COLUMNS = {
    "order_id": "STRING",
    "at": "TIMESTAMP",
    "customer": "BIGINT",
    "amount": "DOUBLE",
    "quantity": "INT",
    "city": "STRING",
    "paid": "BOOLEAN",
    "tags": "ARRAY<STRING>",
    "address": "STRUCT<street: STRING, zip: INT>",
}
_FIRST = 1_767_225_600_000_000


def _order(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "order_id": f"order-{number:08}",
        "at": _FIRST + number * 1_000,
        "customer": chance.randrange(10**6),
        "amount": chance.random() * 100,
        "quantity": chance.randrange(10),
        "city": chance.choice([None, "York", "Berlin"]),
        "paid": chance.random() < 0.5,
        "tags": ["new", "gift"],
        "address": {"street": "Main Street 5", "zip": chance.choice([None, 12345])},
    }


def _write(schema: Any, rows: Sequence[dict[str, Any]]) -> list[bytes]:  # noqa: ANN401 (fastavro's)
    values = list[bytes]()
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, row)
        values.append(buffer.getvalue())
    return values


def _per_second(work: Callable[[], object], events: int, rounds: int) -> float:
    """Return the events per second of processor time in the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return events / best


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    chance = random.Random(1)
    rows = [_order(number, chance) for number in range(given.events)]
    table = Table("record", "Tidemark's reader", "fastavro's reader", "ratio", "decode")
    for name, fields in (("flat", _FLAT), ("nested", _NESTED)):
        some = [{each["name"]: row[each["name"]] for each in fields} for row in rows]
        own, theirs, whole = _measure(fields, some, given.rounds)
        ratio = f"{theirs / own:.2f}"
        table.add_row(name, f"{own:,.0f}/s", f"{theirs:,.0f}/s", ratio, f"{whole:,.0f}/s")
    console.print(table)
    return 0


def _measure(
    fields: Sequence[Any], rows: Sequence[dict[str, Any]], rounds: int
) -> tuple[float, float, float]:
    """Return the events per second of Tidemark's reader, of fastavro's, and of `decode`."""
    schema = {"type": "record", "name": "Order", "fields": fields}
    parsed = fastavro.parse_schema(schema)
    values = _write(parsed, rows)
    column = pa.chunked_array([pa.array(values, pa.binary())])
    avro = Avro(schema=json.dumps(schema))
    columns = {each["name"]: _COLUMNS[each["name"]] for each in fields}

    def read() -> None:
        for value in values:
            avro.decode_event(value)

    def read_by_fastavro() -> None:
        for value in values:
            fastavro.schemaless_reader(io.BytesIO(value), parsed)

    def decode() -> None:
        avro.decode_values(column, columns)

    return (
        _per_second(read, len(values), rounds),
        _per_second(read_by_fastavro, len(values), rounds),
        _per_second(decode, len(values), rounds),
    )


if __name__ == "__main__":
    sys.exit(main())
