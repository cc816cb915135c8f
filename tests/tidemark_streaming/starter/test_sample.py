"""The columns of a new project have the types that its ingest decodes."""

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tidemark.base.errors import DataError
from tidemark_streaming.starter.conversions import (
    COMMA_NUMBERS,
    DATE_AND_TIME,
    DATES,
    EPOCHS,
    TEXT_TIMES,
)
from tidemark_streaming.starter.sample import Sample, read_sample

AT = "2026-01-31T09:30:00Z"


def sample(folder: Path, values: Sequence[str]) -> Sample:
    lines = "".join(f"{AT},york,1.5,{value}\n" for value in values)
    file = folder / "own.csv"
    file.write_text(f"at,city,amount,x\n{lines}")
    return read_sample(file)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", "BIGINT"),
        ("20260131", "BIGINT"),
        ("1.5", "DOUBLE"),
        ("1e3", "DOUBLE"),
        ("true", "BOOLEAN"),
        ("2026-01-31", "DATE"),
        ("2026-01-31 09:30", "TIMESTAMP"),
        (AT, "TIMESTAMP"),
        ("1_000", "STRING"),
        ("1_000.5", "STRING"),
        ("\u0661", "STRING"),
        ("1\u066b5", "STRING"),
        ("2026-W05-6", "STRING"),
        ("20260131T093000Z", "STRING"),
        ("2026-02-30", "STRING"),
        ("", "STRING"),
    ],
)
def test_a_type_is_inferred_as_the_ingest_decodes_it(tmp_path: Path, value: str, kind: str) -> None:
    found = sample(tmp_path, [value] * 20)
    assert found.columns == {"at": "TIMESTAMP", "city": "STRING", "amount": "DOUBLE", "x": kind}
    assert found.misfits == []


@pytest.mark.parametrize("odd", ["1_000", "\u0661", "2026-W05-6", "NA", " 7"])
def test_a_value_that_the_ingest_refuses_is_reported(tmp_path: Path, odd: str) -> None:
    found = sample(tmp_path, [*map(str, range(20)), odd])
    assert found.columns["x"] == "BIGINT"
    assert found.misfits == ["1 row of 'x' without a valid BIGINT"]
    assert found.table["x"].to_pylist() == [*range(20), None]


def test_a_text_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_bytes(f"at,city,amount\n{AT},york,1.5\n{AT},m\xfcnchen,1.5\n".encode("latin-1"))
    found = read_sample(file)
    assert found.misfits == ["1 line that can't be decoded (the record is not valid UTF-8)"]


CONTENT = f'at , city,amount\r\n{AT},"a\nb",1.5\r\n\n{AT},york,2\n'


@pytest.mark.parametrize(
    "content",
    [
        CONTENT.encode(),
        CONTENT.encode("utf-8-sig"),
        CONTENT.encode("utf-16"),
        gzip.compress(CONTENT.encode(), mtime=0),
        CONTENT.replace(",", ";").encode(),
        f"sep=|\n{CONTENT.replace(',', '|')}".encode("utf-16"),
    ],
)
def test_a_file_is_read_as_the_ingest_reads_it(tmp_path: Path, content: bytes) -> None:
    """A byte order mark, line breaks, blank lines, spaces in the header, and compression."""
    (tmp_path / "own.csv").write_bytes(content)
    found = read_sample(tmp_path / "own.csv")
    assert found.columns == {"at": "TIMESTAMP", "city": "STRING", "amount": "DOUBLE"}
    assert (found.table.num_rows, found.misfits) == (2, [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        ("at,st\u00e4dt\n".encode("latin-1"), "The record is not valid UTF-8"),
        (b"at,x\r2026-01-01,1\r", "The record is not valid CSV: a quote or a line break is"),
    ],
)
def test_a_file_that_the_ingest_cannot_read_is_refused(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(DataError, match=f"can't be read as CSV with a header: {reason}"):
        read_sample(tmp_path / "own.csv")


MOMENT = datetime(2026, 1, 31, 9, 5, tzinfo=UTC)
EXCEL = {
    "semicolons": b"order;at;city;amount\r\n1;2026-01-31 09:05;Ulm;1.50\r\n",
    "us": b"order,when,city,amount\r\n1,1/31/2026 9:05 AM,Ulm,1.50\r\n",
    "german": b"\xef\xbb\xbforder;zeit;stadt;amount\r\n1;31.01.2026 09:05;Ulm;1,50\r\n",
    "two columns": b"order,day,time,city,amount\n1,2026-01-31,09:05,Ulm,1.50\n",
    "two german columns": b"order;tag;zeit;city;amount\n1;31.01.2026;09:05;Ulm;1,50\n",
    "millis": b"order,ts,city,amount\n1,1769850300000,Ulm,1.50\n",
    "seconds": b"order,ts,city,amount\n1,1769850300,Ulm,1.50\n",
    "nanos": b"order,at,city,amount\n1,2026-01-31T09:05:00.000000000Z,Ulm,1.50\n",
    "sep": b"sep=,\r\norder,at,city,amount\r\n1,2026-01-31T09:05:00Z,Ulm,1.50\r\n",
    "utf-16": "order\tat\tcity\tamount\r\n1\t2026-01-31T09:05:00Z\tUlm\t1.50\r\n".encode("utf-16"),
}


@pytest.mark.parametrize("content", EXCEL.values(), ids=EXCEL)
def test_times_and_numbers_of_spreadsheets_are_recognized(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "own.csv").write_bytes(content)
    found = read_sample(tmp_path / "own.csv")
    (time, value) = (found.time[0], found.value[0])
    assert found.table[time].to_pylist() == [MOMENT]
    assert found.table[value].to_pylist() == [1.5]
    assert set(found.computed) == {name for name in (time, value) if name in found.computed}
    assert found.misfits == []


def test_a_date_is_the_event_time_only_if_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("day,city,amount,n\n2026-01-31,Ulm,1.5,1700000000\n")
    assert read_sample(tmp_path / "own.csv").computed == {"at": "timestamp_seconds(`n`)"}
    (tmp_path / "own.csv").write_text("day,city,amount,n\n2026-01-31,Ulm,1.5,7\n")
    computed = read_sample(tmp_path / "own.csv").computed
    assert computed == {"at": "to_timestamp(`day`, 'yyyy-MM-dd')"}


def test_each_conversion_gives_the_same_values_in_the_engine(spark: SparkSession) -> None:
    """Python recognizes the values of a file, and the engine converts them at each ingest."""
    random = Random(7)
    python_patterns = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d %b %Y", "%d.%m.%y", "%Y%m%d"]
    times = ["", " %H:%M", " %I:%M:%S %p", "T%H:%M:%S", ", %H:%M"]
    texts = [
        "1,5",
        "1.234,25",
        "-7",
        "2026-01-31T09:05:00.123456789Z",
        "2026-01-31 09:05:00.1234567",
    ]
    for pattern in (date + time for date in python_patterns for time in times):
        moment = datetime.fromtimestamp(random.randrange(1_000_000_000, 2_000_000_000), UTC)
        texts.append(moment.strftime(pattern))
    numbers = [str(1_769_850_300 * 10**power + 7) for power in (0, 3, 6, 9)]
    expected, expressions = list[object](), list[str]()
    by_text = [*TEXT_TIMES, *DATE_AND_TIME, *DATES, *COMMA_NUMBERS]
    for conversions, values, operand in ((by_text, texts, "'{}'"), (EPOCHS, numbers, "{}L")):
        for conversion in conversions:
            for text, value in zip(values, conversion.convert_texts(values), strict=True):
                if value is not None:
                    expected.append(value)
                    expressions.append(conversion.sql.format(operand.format(text)))
    assert len(expressions) > len(texts)
    columns = (f"{sql} AS c{number}" for number, sql in enumerate(expressions))
    (row,) = spark.sql(f"SELECT {', '.join(columns)}").toArrow().to_pylist()
    differences = [
        (sql, value, wanted)
        for sql, value, wanted in zip(expressions, row.values(), expected, strict=True)
        if value != wanted
    ]
    assert differences == []
