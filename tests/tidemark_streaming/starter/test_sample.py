"""The columns of a new project have the types that its ingest decodes."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidemark.base.errors import DataError
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
    [CONTENT.encode(), CONTENT.encode("utf-8-sig"), gzip.compress(CONTENT.encode(), mtime=0)],
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
        (CONTENT.encode("utf-16"), "The record is not valid UTF-8"),
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
