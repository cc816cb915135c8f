"""What is parsed in memory is what the engine would have made of it."""

import json
import random
from typing import Any

import pyarrow as pa

from tidemark.engine.requests import fetch
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka.records import SCHEMA
from tidemark_streaming.payloads import Json
from tidemark_streaming.payloads.plain import parsed

COLUMNS = {
    "at": "TIMESTAMP",
    "s": "STRING",
    "i": "INT",
    "l": "bigint",
    "d": "DOUBLE",
    "b": "BOOLEAN",
}
PLAIN = [
    '{"at":"2026-11-23T10:00:00Z","s":"a","i":1,"l":2,"d":0.5,"b":true}',
    '{"at":"2026-11-23T10:00:00.123456+05:30","s":"é\\u00e9\\n\\"","i":-0,"l":-9223372036854775808}',
    '{"at":"1999-12-31T23:59:59.9-08:00","d":1,"b":false,"more":{"s":[1,{"i":"x"}]}}',
    '{"d":1e-7,"s":"","l":9223372036854775807,"i":null}',
    '{"d":123456789012345678901234567890, "S": "other", "I": 7}',
    "{}",
    '{ "s" : "\\u0000" , "d" : -0.0 }',
]
"""What has to be parsed in memory."""
OTHERS = [
    "",
    " ",
    "null",
    "1",
    '"x"',
    "[]",
    '[{"s":"a"}]',
    "{",
    "}",
    '{"s":"a"',
    '{"s":"a"}x',
    '{"s":"a"}{"s":"b"}',
    '{"s":"a"} {"s":"b"}',
    ' {"s":"a"}',
    '{"s":"a"}\n',
    '{"s":\n"a"}',
    '{"i":1.0}',
    '{"i":1.5}',
    '{"i":1e2}',
    '{"i":"1"}',
    '{"i":2147483648}',
    '{"i":01}',
    '{"i":true}',
    '{"l":9223372036854775808}',
    '{"l":"x"}',
    '{"d":"0.5"}',
    '{"d":NaN}',
    '{"d":"NaN"}',
    '{"d":Infinity}',
    '{"d":1e400}',
    '{"d":"x"}',
    '{"b":"true"}',
    '{"b":1}',
    '{"s":1}',
    '{"s":true}',
    '{"s":{"x": 1}}',
    '{"s":[1, 2]}',
    '{"s":"a","s":"b"}',
    "{'s':'a'}",
    '{"s":"\t"}',
    '{"s":"\\ud800"}',
    '{"s":"\\x"}',
    '{"at":"2026-11-23"}',
    '{"at":"2026-11-23 10:00:00"}',
    '{"at":"2026-11-23T10:00:00"}',
    '{"at":"2026-02-30T10:00:00Z"}',
    '{"at":"2026-11-23T24:00:00Z"}',
    '{"at":"2026-11-23T10:00:60Z"}',
    '{"at":"2026-11-23T10:00:00.1234567Z"}',
    '{"at":"2026-11-23T10:00:00+19:00"}',
    '{"at":1}',
    '{"at":"2026-11-23T10:00:00+0530"}',
    '{"at":"2026-11-23T10:00:00-00:00"}',
    '{"at":""}',
    '{"at":"now"}',
    '{"s":"a",}',
    '{"s" "a"}',
    '{"s":/**/"a"}',
    '{s:"a"}',
    '{"":1}',
    '{"s":"a"}}',
    '{"d":1.}',
    '{"d":.5}',
    '{"d":+1}',
]
CHARACTERS = '{}[]":,.0123456789eE+-TZabs \\ué'


def _values() -> list[bytes]:
    """These, and plain ones with a few characters changed, taken out or put in."""
    chance, found = random.Random(7), [v.encode() for v in (*PLAIN, *OTHERS)]
    found.append(b'{"s":"\xff\xfe"}')
    for _ in range(1500):
        value = list(chance.choice(PLAIN[:5]))
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(value))
            value[at : at + chance.randint(0, 1)] = chance.choice([*CHARACTERS, ""])
        found.append("".join(value).encode())
    return found


def test_what_is_parsed_here_is_what_the_engine_makes_of_it(warehouse: Warehouse) -> None:
    values = _values()
    records = SCHEMA.empty_table().to_pydict() | {"value": values}
    length = len(values)
    filled = {n: c or [None] * length for n, c in records.items()}
    filled["position"] = list(range(length))
    given = pa.table(filled, schema=SCHEMA)
    rows = fetch(Json().decode(warehouse.spark, given, COLUMNS))
    flat = rows.select(["position", "reason", "event"]).flatten()
    # The engine makes instants of years that Python does not have.
    flat = flat.set_column(2, "event.at", flat["event.at"].cast(pa.int64()))
    told = {row["position"]: row for row in flat.to_pylist()}
    here = list[int]()
    for n, value in enumerate(values):
        found = parsed(_column([value]), COLUMNS)
        if found is None:
            continue
        here.append(n)
        mine = {name: column[0].as_py() for name, column in found.items()}
        mine["at"] = found["at"].cast(pa.int64())[0].as_py()
        engine: dict[str, Any] = {name: told[n][f"event.{name}"] for name in COLUMNS}
        assert told[n]["reason"] is None, value
        assert mine == engine, value
        assert str(mine["d"]) == str(engine["d"]), value
    assert set(range(len(PLAIN))) <= set(here)
    # Many of the changed ones are plain too.
    assert len(here) > 200


def test_all_are_parsed_or_none() -> None:
    plain = [value.encode() for value in PLAIN] * 3
    found = parsed(_column(plain), COLUMNS)
    assert found is not None
    assert found["s"].to_pylist()[: len(PLAIN)] == [json.loads(v).get("s") for v in PLAIN]
    assert parsed(_column([*plain, None]), COLUMNS) is None
    # Two in one value, where another has none, are as many rows as values.
    for odd in (
        [b'{"s":"a"}{"s":"b"}'],
        [b"", b'{"s":"a"}{"s":"b"}'],
        [b'{"s":{}', b'{"s":1}}'],
        [b'{"i":1}\n{"i":2}', b" "],
    ):
        assert parsed(_column([*plain, *odd]), COLUMNS) is None


def _column(values: "list[bytes] | list[bytes | None]") -> Any:  # noqa: ANN401 (Arrow's own type)
    return pa.chunked_array([pa.array(values, pa.binary())])
