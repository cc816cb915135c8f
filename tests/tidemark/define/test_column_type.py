"""Tests of column types: Spark's DDL types that every table supports, and the refused ones."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from tidemark.base.errors import DefinitionError
from tidemark.define.column_type import parse_columns, simple_type
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.source import Source
from tidemark.define.watermarks import MonotonicTimestamps

DDL = (
    "at TIMESTAMP, `order id`: Integer NOT NULL, tags ARRAY<STRING> COMMENT 'x, y', n decimal(8,2)"
)
PLAIN = [
    *("string", "binary", "boolean", "date", "double", "float", "timestamp", "timestamp_ntz"),
    *("tinyint", "smallint", "int", "bigint", "decimal(10,0)", "decimal(38,18)"),
]
TYPES = st.recursive(
    st.sampled_from(PLAIN),
    lambda kinds: st.one_of(
        kinds.map("array<{}>".format),
        st.tuples(kinds, kinds).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(kinds, min_size=1, max_size=3).map(
            lambda each: f"struct<{','.join(f'f{n}:{kind}' for n, kind in enumerate(each))}>"
        ),
    ),
    max_leaves=5,
)


@given(TYPES, st.sampled_from(["", " NOT NULL", " COMMENT 'it is'", " not null comment 'x'"]))
def test_a_type_is_normalized_to_sparks_simple_name(kind: str, suffix: str) -> None:
    written = kind.replace(",", " , ").replace("int", "INT").replace("<", " < ")
    assert simple_type(f" {written}{suffix}") == kind


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("VARCHAR(20)", "VARCHAR is not supported; declare it as STRING"),
        ("char( 2 )", "CHAR is not supported; declare it as STRING"),
        ("ARRAY<VARIANT>", "VARIANT is not supported; declare it as STRING, which keeps the JSON"),
        (
            "INTERVAL DAY TO SECOND",
            "INTERVAL is not supported; declare it as BIGINT, as a number of",
        ),
        ("DOUBEL", "'DOUBEL' is not a type; the supported types are STRING, BOOLEAN"),
        ("ARRAY<INT", "expected '>' at the end"),
        ("MAP<STRING>", "expected ',' before '>'"),
        ("STRING COLLATE UNICODE", "'COLLATE' is not allowed after a type"),
        ("DECIMAL(40, 2)", r"DECIMAL\(40, 2\) must have a precision of at most 38"),
        ("", "the type is incomplete"),
        ("INT;", "';' is not a type"),
    ],
)
def test_other_types_are_refused_with_an_alternative(kind: str, sentence: str) -> None:
    message = f"Source 's': column 'x' can't have the type '.*': {sentence}"
    with pytest.raises(DefinitionError, match=message):
        Source("s", {"at": "TIMESTAMP", "x": kind}, "at", MonotonicTimestamps())


def test_struct_fields_may_have_names_of_types() -> None:
    assert simple_type("STRUCT<char: INT, `a b` STRING>") == "struct<char:int,a b:string>"
    assert simple_type("STRUCT<`a``b`: INT>") == "struct<a`b:int>"


def test_a_decimal_has_ten_digits_by_default() -> None:
    assert simple_type("DECIMAL") == "decimal(10,0)"
    assert simple_type("NUMERIC(12)") == "decimal(12,0)"


def tagged_orders(rows: DataFrame) -> DataFrame:
    return rows.where("size(tags) > 0")


def test_columns_are_declared_by_a_ddl_text() -> None:
    declared = {"at": "timestamp", "order id": "int", "tags": "array<string>", "n": "decimal(8,2)"}
    assert parse_columns(DDL) == declared
    source = Source("orders", DDL, "at", MonotonicTimestamps())
    assert source == Source("orders", declared, "at", MonotonicTimestamps())
    tagged = row_asset(source=source, columns="at TIMESTAMP, tags ARRAY<STRING>")(tagged_orders)
    assert list(tagged.columns)[:2] == ["at", "tags"]


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [
        ("", "the type is incomplete"),
        ("at", "the type is incomplete"),
        ("at TIMESTAMP,", "the type is incomplete"),
        ("at TIMESTAMP n INT", "expected ',' before 'n'"),
        ("at TIMESTAMP, at INT", "the column 'at' is declared twice"),
        ("at TIMESTAMP, n NUMBER", "'NUMBER' is not a type"),
        ("at TIMESTAMP, order-id INT", "'-id INT' is not a type"),
        ("at TIMESTAMP, <INT>", "'<' is not a name"),
    ],
)
def test_a_ddl_text_that_is_not_valid_is_refused(ddl: str, sentence: str) -> None:
    message = f"Source 'orders': the text of columns is not valid: {re.escape(sentence)}.*Write na"
    with pytest.raises(DefinitionError, match=message):
        Source("orders", ddl, "at", MonotonicTimestamps())
