"""Files that do not have one record on each line are refused, and no other file is."""

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.base.errors import DataError
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.connector import DEAD
from tidemark_streaming.files import FileConnector

NO_ENGINE: Any = None
AT = "2026-01-01T00:00:00Z"
SOURCE = Source(
    name="s",
    columns={"at": "TIMESTAMP", "k": "STRING"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
)
OBJECTS = st.lists(
    st.fixed_dictionaries({"at": st.just(AT), "k": st.text(max_size=20)}), min_size=1, max_size=5
)
FIELDS = st.lists(st.text("abc[{}\u00e9 ", max_size=10), min_size=1, max_size=5)


def read(folder: Path, content: bytes, form: Literal["csv", "json"]) -> list[dict[str, Any]]:
    (folder / f"a.{form}").write_bytes(content)
    connector = FileConnector(SOURCE, folder, form, names=f"*.{form}")
    rows = connector.read(NO_ENGINE, connector.list_pending([]))
    return pa.concat_tables(rows).to_pylist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("landing")


@given(objects=OBJECTS, indent=st.sampled_from([None, 0, 1, 4]), begin=st.sampled_from(["", " "]))
def test_an_array_of_any_form_is_refused(
    folder: Path, objects: list[Any], indent: int | None, begin: str
) -> None:
    text = begin + json.dumps(objects, indent=indent)
    with pytest.raises(DataError, match="its objects are in a JSON array"):
        read(folder, text.encode(), "json")


@given(objects=OBJECTS, indent=st.sampled_from([0, 1, 4]))
def test_objects_on_several_lines_are_refused(
    folder: Path, objects: list[Any], indent: int
) -> None:
    text = "\n".join(json.dumps(each, indent=indent) for each in objects)
    with pytest.raises(DataError, match="its objects have several lines"):
        read(folder, text.encode(), "json")


@given(objects=OBJECTS, ends=st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_an_object_on_each_line_is_read(folder: Path, objects: list[Any], ends: str) -> None:
    text = "".join(json.dumps(each) + ends for each in objects)
    rows = read(folder, text.encode(), "json")
    assert [row["k"] for row in rows] == [each["k"] for each in objects]


@given(fields=FIELDS, last=st.booleans())
def test_lines_that_end_with_a_carriage_return_alone_are_refused(
    folder: Path, fields: list[str], last: bool
) -> None:
    lines = [f"{AT},{field}" for field in [*fields, "z"]]
    with pytest.raises(DataError, match="a carriage return"):
        read(folder, ("\r".join(lines) + ("\r" if last else "")).encode(), "csv")
    rows = read(folder, "\n".join(lines).encode(), "csv")
    assert [row["k"] for row in rows] == [field or None for field in [*fields, "z"]]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04\x14\x00", "a ZIP archive"),
        (b"PAR1\x15\x00\x15", "a Parquet file"),
        (b"Obj\x01\x04\x16avro.schema", "an Avro file"),
        (b"ORC\x0a\x00", "an ORC file"),
        (b"SQLite format 3\x00", "a database of SQLite"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an Excel workbook"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    ],
)
def test_a_file_that_is_not_text_is_named(folder: Path, content: bytes, kind: str) -> None:
    with pytest.raises(DataError, match=f"can't be read: it is {kind}"):
        read(folder, content + b"\n" + b"x" * 50, "csv")


@pytest.mark.parametrize("begin", ["PAR1", "ORC", "Obj", "PK", "7z"])
def test_a_text_with_the_letters_of_a_signature_is_read(folder: Path, begin: str) -> None:
    first, second = read(folder, f"{begin}HARD,x\n{AT},y\n".encode(), "csv")
    assert first[DEAD]["reason"] == "The field 'at' is not a valid TIMESTAMP."
    assert second["k"] == "y"
