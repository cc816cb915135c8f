"""Values in Parquet files are read exactly, or are dead letters, or their file is refused."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.data.landing import NO_ENGINE
from tidemark.base import thresholds
from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.connector import DEAD
from tidemark_streaming.files import FileConnector
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.faults import Fault

Array = Any
"""An Arrow array."""


def read(folder: Path, kind: str, values: Array, **more: Any) -> tuple[list[Any], list[int]]:  # noqa: ANN401 (the writer's own)
    """Write a column to a file and read it as `kind`: return its values, and the dead letters."""
    zero = pa.array([0] * len(values), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": zero, "x": values}), folder / "a.parquet", **more)
    columns = {"at": "TIMESTAMP", "x": kind}
    source = Source("values", columns, "at", BoundedOutOfOrderness("0 seconds"))
    return read_source(source, folder)


def read_source(source: Source, folder: Path) -> tuple[list[Any], list[int]]:
    connector = FileConnector(source, folder, "parquet", {"timeZone": "UTC"})
    rows = pa.concat_tables(connector.read(NO_ENGINE, connector.list_pending([])))
    rows.validate(full=True)
    assert rows["x"].type == arrow_type(source.columns["x"])
    if pa.types.is_timestamp(rows["x"].type):
        found = rows["x"].cast(pa.int64()).to_pylist()
    else:
        found = rows["x"].to_pylist()
    letters = rows[DEAD].to_pylist()
    kinds = (Fault.MISFIT, Fault.FINER)
    reasons = {kind.describe_fault(source.field_of("x"), source.columns["x"]) for kind in kinds}
    assert {letter["reason"] for letter in letters if letter} <= reasons
    return found, [n for n, letter in enumerate(letters) if letter]


D, LATEST = Decimal, 253_402_300_799_999_999
CASES: dict[str, tuple[Array, str, list[Any], list[int]]] = {
    "int32 as TINYINT": (pa.array([1, 300, -129, None], pa.int32()), "TINYINT", [1], [1, 2]),
    "int64 as INT": (pa.array([1, 2**40]), "INT", [1], [1]),
    "uint8 as TINYINT": (pa.array([1, 200], pa.uint8()), "TINYINT", [1], [1]),
    "uint32 as INT": (pa.array([1, 2**31], pa.uint32()), "INT", [1], [1]),
    "uint64 as BIGINT": (pa.array([1, 2**63], pa.uint64()), "BIGINT", [1], [1]),
    "uint64 as DECIMAL": (pa.array([2**63], pa.uint64()), "DECIMAL(20,0)", [D(2**63)], []),
    "int64 as DECIMAL": (pa.array([1, 10**8]), "DECIMAL(10,2)", [D(1)], [1]),
    "int64 as DOUBLE": (pa.array([1, 2**53 + 1]), "DOUBLE", [1.0], [1]),
    "smaller scale": (
        pa.array([D("1.005"), D("1.000")], pa.decimal128(10, 3)),
        "DECIMAL(10,2)",
        [D(1)],
        [0],
    ),
    "decimals of 256 bits": (
        pa.array([D("1.05"), D(10**50)], pa.decimal256(60, 2)),
        "DECIMAL(10,2)",
        [D("1.05")],
        [1],
    ),
    "bytes as STRING": (pa.array([b"ab", b"\xff\xfe"]), "STRING", ["ab"], [1]),
    "a dictionary": (pa.array(["a", "b"]).dictionary_encode(), "STRING", ["a", "b"], []),
    "long texts": (pa.array(["a"], pa.large_string()), "STRING", ["a"], []),
    "a UUID": (
        pa.array([bytes(range(16))], pa.uuid()),
        "STRING",
        ["00010203-0405-0607-0809-0a0b0c0d0e0f"],
        [],
    ),
    "fixed size": (pa.array([b"\xff1"], pa.binary(2)), "BINARY", [b"\xff1"], []),
    "half": (pa.array([1.5], pa.float16()), "FLOAT", [1.5], []),
    "days as times": (pa.array([date(2026, 1, 1)]), "TIMESTAMP", [1_767_225_600_000_000], []),
    "nested nanoseconds": (
        pa.array([[1000], [1001]], pa.list_(pa.timestamp("ns", "UTC"))),
        "ARRAY<TIMESTAMP>",
        [[datetime(1970, 1, 1, 0, 0, 0, 1, UTC)]],
        [1],
    ),
    "numbers in lists": (
        pa.array([[1, 300], None, [], [None, 2]], pa.list_(pa.int32())),
        "ARRAY<TINYINT>",
        [[], [None, 2]],
        [0],
    ),
    "numbers in maps": (
        pa.array([[("k", 1)], [("k", 300)], []], pa.map_(pa.string(), pa.int32())),
        "MAP<STRING, TINYINT>",
        [[("k", 1)], []],
        [1],
    ),
    "numbers in structs": (
        pa.array([{"a": 1, "c": 2}, {"a": 300, "c": 2}]),
        "STRUCT<a: TINYINT, b: STRING>",
        [{"a": 1, "b": None}],
        [1],
    ),
    "nothing but null": (pa.nulls(2), "BIGINT", [], []),
    "no rows": (pa.array([], pa.int32()), "TINYINT", [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_value_is_exact_or_a_dead_letter(tmp_path: Path, case: str) -> None:
    values, kind, expected, misfits = CASES[case]
    found, dead = read(tmp_path, kind, values)
    assert ([v for v in found if v is not None], dead) == (expected, misfits)
    assert len(found) == len(values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([0.1]), "FLOAT"),
        (pa.array([1.0]), "BIGINT"),
        (pa.array([0.1]), "DECIMAL(10,2)"),
        (pa.array(["1"]), "INT"),
        (pa.array([True]), "INT"),
        (pa.array([1]), "TIMESTAMP"),
        (pa.array([1]), "DATE"),
        (pa.array([1], pa.timestamp("ms")), "BIGINT"),
        (pa.array([1], pa.time64("us")), "BIGINT"),
        (pa.array([[1]]), "STRING"),
        (pa.array([b"ab"], pa.binary(2)), "STRING"),
    ],
)
def test_a_file_with_another_kind_of_values_is_refused(
    tmp_path: Path, values: Array, kind: str
) -> None:
    wanted = kind.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(DataError, match=rf"a\.parquet' .*its column 'x' is .* not fit {wanted}\."):
        read(tmp_path, kind, values)


@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_as_spark_writes_them_are_read(tmp_path: Path, zone: str | None) -> None:
    """Spark writes INT96 by default; other programs store nanoseconds in it."""
    nanos = pa.array([1000, 1001, -1000, None], pa.int64()).cast(pa.timestamp("ns", zone))
    found = read(tmp_path, "TIMESTAMP", nanos, use_deprecated_int96_timestamps=True)
    assert found == ([1, None, -1, None], [1])
    far = pa.array([LATEST, -62_135_596_800_000_000], pa.timestamp("us", zone))
    found = read(tmp_path, "TIMESTAMP", far, use_deprecated_int96_timestamps=True)
    assert found == (far.cast(pa.int64()).to_pylist(), [])


def test_texts_that_claim_to_be_utf8_are_checked(tmp_path: Path) -> None:
    texts = pa.StringArray.from_buffers(
        2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
    )
    assert read(tmp_path, "STRING", texts) == (["a", None], [1])


def test_columns_are_found_by_name_whatever_its_case(tmp_path: Path) -> None:
    columns = {"at": "TIMESTAMP", "x": "BIGINT"}
    source = Source(
        "values", columns, "at", BoundedOutOfOrderness("0 seconds"), rename={"`a.B`": "x"}
    )
    at = pa.array([0], pa.timestamp("us", "UTC"))
    rows = {"at": at, "A.b": [1], "a": [{"b": 2}], "other": [3]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    assert read_source(source, tmp_path) == ([1], [])
    pq.write_table(pa.table({**rows, "a.B": [4]}), tmp_path / "a.parquet")
    assert read_source(source, tmp_path) == ([4], [])
    pq.write_table(pa.table({**rows, "A.B": [4]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"it has the column 'a\.B' twice"):
        read_source(source, tmp_path)


@pytest.mark.parametrize(
    "deep", ["STRUCT<a: {}>", "ARRAY<STRUCT<a: {}>>", "MAP<INT, STRUCT<a: {}>>"]
)
def test_fields_of_structs_are_found_by_name_whatever_their_case(tmp_path: Path, deep: str) -> None:
    """SPARK-31116: a field whose name has another case is not null."""

    def nest(fields: dict[str, Any]) -> Any:  # noqa: ANN401
        around = {"S": fields, "A": [fields], "M": [(1, fields)]}
        return around[deep[0]]

    def write(*names: str) -> Array:
        inner = pa.struct([(name, pa.int64()) for name in names])
        kinds = {"S": inner, "A": pa.list_(inner), "M": pa.map_(pa.int32(), inner)}
        return pa.array([nest({name: n for n, name in enumerate(names)}), None], kinds[deep[0]])

    kind = deep.format("BIGINT")
    assert read(tmp_path, kind, write("A")) == ([nest({"a": 0}), None], [])
    assert read(tmp_path, kind, write("A", "a")) == ([nest({"a": 1}), None], [])
    assert read(tmp_path, kind, write("b")) == ([nest({"a": None}), None], [])
    with pytest.raises(DataError, match=r"column 'x' is .*, which does not fit"):
        read(tmp_path, deep.replace("a:", "aB:").format("BIGINT"), write("AB", "Ab"))


NANOS = st.none() | st.integers(-10_000, 10_000)


@settings(max_examples=30)
@given(st.lists(st.none() | st.lists(NANOS, max_size=2), min_size=1, max_size=5))
def test_nested_times_of_spark_are_exact_or_dead_letters(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int | None] | None]
) -> None:
    time = pa.timestamp("ns")
    dead = [n for n, row in enumerate(rows) if any(v is not None and v % 1000 for v in row or [])]
    lists = pa.array(rows, pa.list_(time))
    structs = pa.array([{"t": row[0]} if row else None for row in rows], pa.struct({"t": time}))
    maps = pa.array(
        [row if row is None else list(enumerate(row)) for row in rows], pa.map_(pa.int32(), time)
    )
    first = [n for n in dead if ((rows[n] or [])[0] or 0) % 1000]
    for values, kind, expected in (
        (lists, "ARRAY<TIMESTAMP>", dead),
        (structs, "STRUCT<t: TIMESTAMP>", first),
        (maps, "MAP<INT, TIMESTAMP>", dead),
    ):
        _, found = read(
            tmp_path_factory.mktemp("nested"), kind, values, use_deprecated_int96_timestamps=True
        )
        assert found == expected


def test_a_file_without_the_event_time_or_with_a_column_in_its_folder_is_refused(
    tmp_path: Path,
) -> None:
    """Programs that partition their files write the column `x` as the folder `x=5`."""
    zero = pa.array([0], pa.timestamp("us", "UTC"))
    columns = {"at": "TIMESTAMP", "x": "BIGINT"}
    source = Source("values", columns, "at", BoundedOutOfOrderness("0 seconds"))
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet' .* it has no column 'at', the event time\."):
        read_source(source, tmp_path)
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "X=5").mkdir()
    pq.write_table(pa.table({"at": zero}), tmp_path / "X=5/a.parquet")
    with pytest.raises(DataError, match=r"its column 'X' is only in .* the folder 'X=5'"):
        read_source(source, tmp_path)
    pq.write_table(pa.table({"at": zero, "x": [7]}), tmp_path / "X=5/a.parquet")
    assert read_source(source, tmp_path) == ([7], [])


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    columns = {"at": "TIMESTAMP", "x": "BIGINT"}
    source = Source("values", columns, "at", BoundedOutOfOrderness("0 seconds"))
    with pytest.raises(
        DefinitionError, match="no option 'mergeSchema': its options are timeZone and finer"
    ):
        FileConnector(source, tmp_path, "parquet", {"mergeSchema": True})
    with pytest.raises(DefinitionError, match="unknown time zone, 'Nowhere'"):
        FileConnector(source, tmp_path, "parquet", {"timeZone": "Nowhere"})


WIDTHS = [8, 16, 32, 64]
NUMBERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{getattr(pa, f"int{w}")(): st.integers(-(2 ** (w - 1)), 2 ** (w - 1) - 1) for w in WIDTHS},
    **{getattr(pa, f"uint{w}")(): st.integers(0, 2**w - 1) for w in WIDTHS},
    pa.decimal128(12, 4): st.decimals(D(-(10**7)), D(10**7), places=4),
    pa.decimal128(20, 0): st.integers(-(10**20) + 1, 10**20 - 1).map(D),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
}
WHOLE = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
FITS: dict[str, Callable[[Any], bool]] = {
    **{
        k: lambda v, w=w: -(2 ** (w - 1)) <= v < 2 ** (w - 1) and v == int(v)
        for k, w in WHOLE.items()
    },
    "DECIMAL(10,2)": lambda v: abs(v) < 10**8 and Fraction(v) * 100 == int(Fraction(v) * 100),
    "FLOAT": lambda v: isinstance(v, float) or abs(v) <= 2**24,
    "DOUBLE": lambda v: isinstance(v, float) or abs(v) <= 2**53,
}


@given(st.data())
def test_numbers_of_any_width_are_exact(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    written, kind = data.draw(st.sampled_from([*NUMBERS])), data.draw(st.sampled_from([*FITS]))
    small = st.integers(0, 120).map(D if pa.types.is_decimal(written) else lambda n: n)
    each = NUMBERS[written] | (st.nothing() if pa.types.is_floating(written) else small)
    drawn = data.draw(st.lists(st.none() | each, min_size=1, max_size=8))
    refused = pa.types.is_floating(written) and (kind in WHOLE or "DECIMAL" in kind)
    refused |= (written, kind) == (pa.float64(), "FLOAT")
    refused |= pa.types.is_decimal(written) and "DECIMAL" not in kind
    try:
        found, dead = read(tmp_path_factory.mktemp("numbers"), kind, pa.array(drawn, written))
    except DataError:
        assert refused
        return
    assert not refused
    for n, (value, mine) in enumerate(zip(drawn, found, strict=True)):
        if value is None or n in dead:
            assert mine is None
            assert value is None or not FITS[kind](value), (written, value)
        else:
            assert mine == value or (math.isnan(mine) and math.isnan(value)), (written, kind)


def test_positions_continue_over_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "PARQUET_BATCH_ROWS", 7)
    found, dead = read(tmp_path, "TINYINT", pa.array(range(300)), row_group_size=100)
    assert found == [*range(128), *[None] * 172]
    assert dead == [*range(128, 300)]
