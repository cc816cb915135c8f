"""Every parameter of the connectors refuses an invalid value, in one line that names it."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.data.support import READINGS
from tidemark.base.errors import DefinitionError, TidemarkError
from tidemark_streaming.connector import Excerpt, Ingestion
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.files import FileConnector
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.payloads import Avro, Protobuf

VALID: Mapping[Callable[..., Any], Mapping[str, Any]] = {
    FileConnector: {"source": READINGS, "path": Path("landing")},
    KafkaConnector: {"source": READINGS, "topics": ["readings"]},
    DeltaConnector: {"source": READINGS, "path": "orders"},
    Ingestion: {"source": READINGS, "connector": lambda landing: FileConnector(READINGS, landing)},
    Excerpt: {},
    KafkaSink: {"name": "readings"},
    Lane: {
        "name": "fast",
        "connector": KafkaConnector(READINGS, ["readings"]),
        "prepare": lambda rows: rows,
        "to": KafkaSink("out"),
    },
    Avro: {"schema": '{"type": "record", "name": "r", "fields": []}'},
    Protobuf: {"descriptors": "none.desc", "message": "m"},
}
WRONG: list[object] = [
    *(object(), None, True, -1, 10**30, 0.5, b"bytes", "", "xls", "a\nb", ["x"], [1], {"x": 1}),
    *({1: "x"}, (), len, dict, Path("x"), READINGS),
]
CASES = [(made, name) for made in VALID for name in inspect.signature(made).parameters]


@pytest.mark.parametrize(
    ("made", "parameter"), CASES, ids=[f"{made.__name__}-{name}" for made, name in CASES]
)
def test_an_invalid_value_is_refused_in_one_line(made: Callable[..., Any], parameter: str) -> None:
    for value in WRONG:
        try:
            made(**{**VALID[made], parameter: value})
        except TidemarkError as error:
            said = str(error)
            assert "\n" not in said
            assert said.endswith(".")
            if type(value) is object:
                assert f"{made.__name__}: {parameter} must be " in said


def test_an_unsupported_file_format_is_refused() -> None:
    with pytest.raises(DefinitionError) as error:
        FileConnector(READINGS, Path("landing"), format="xls")  # pyright: ignore[reportArgumentType]
    assert str(error.value) == (
        "FileConnector: format must be one of 'csv', 'json', 'parquet' (got 'xls')."
    )
