"""Definitions of computed columns, and field names that look like paths."""

from dataclasses import replace
from typing import Any

import pytest

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.base.errors import DefinitionError
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import Effect, combined_effect, compare_parts, describe_parts
from tidemark.define.source import Source
from tidemark.define.watermarks import MonotonicTimestamps

PAYLOAD = {"payload": "STRUCT<ts_ms: BIGINT, after: STRUCT<updated_at: BIGINT>>"}
AT = {"at": "timestamp_micros(payload.after.updated_at)"}


SOURCE = Source(
    name="s",
    columns={"at": "TIMESTAMP"},
    event_time="at",
    watermark=MonotonicTimestamps(),
    computed=AT,
    transient_fields=PAYLOAD,
)
PLAIN = replace(SOURCE, computed={}, transient_fields={})


def test_only_the_columns_that_are_not_computed_are_read_from_the_data() -> None:
    named = replace(SOURCE, columns={"at": "TIMESTAMP", "x": "INT"}, rename={"`X.1`": "x"})
    assert named.record_columns == {"x": "INT", **PAYLOAD}
    assert named.record_fields == {"X.1": "INT", **PAYLOAD}
    plain = replace(PLAIN, columns={"at": "TIMESTAMP", "a.b": "INT"})
    assert plain.record_fields == plain.record_columns == plain.columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"computed": {"time": "ts"}}, "computed has the column 'time', which is not among its"),
        ({"computed": {"at": " "}}, "computed must have a SQL expression for the column 'at'"),
        ({"computed": {}}, "has transient_fields, which only expressions of computed use"),
        ({"transient_fields": {}}, "all of its columns are computed. Declare the fields that"),
        ({"transient_fields": {"at": "INT"}}, "'at' is a column and a transient field: remove it"),
        ({"transient_fields": {"p": "VARCHAR"}}, "column 'p' can't have the type 'VARCHAR': "),
        ({"transient_fields": {"AT": "INT"}}, "the columns 'at' and 'AT' differ only in case"),
        ({"rename": {"x": "at"}}, "the column 'at' is computed, but rename maps a field to it"),
        ({"computed": {"at": "current_timestamp()"}}, r"computed calls current_timestamp"),
        ({"computed": {"at": "coalesce(t, NOW())"}}, r"computed calls now\(\)"),
        ({"computed": {"at": "date_add(d, rand())"}}, r"computed calls rand\(\)"),
    ],
)
def test_invalid_computed_columns_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        replace(SOURCE, **arguments)


@pytest.mark.parametrize("path", ["payload.ts_ms", "a.b.c", "payload.after.at"])
def test_a_path_in_rename_is_refused_with_the_way_to_read_it(path: str) -> None:
    message = rf"rename has '{path}', but .* not paths\. .*computed={{'at': '{path}'}}.* '`{path}`'"
    with pytest.raises(DefinitionError, match=message):
        replace(PLAIN, rename={path: "at"})
    quoted = replace(PLAIN, rename={f"`{path}`": "at"})
    assert quoted.record_fields == {path: "TIMESTAMP"}


def test_the_expressions_identify_a_definition() -> None:
    columns = {**READINGS.columns, "unit": "STRING"}
    upper = replace(READINGS, columns=columns, computed={"unit": "upper(sensor)"})
    lower = replace(READINGS, columns=columns, computed={"unit": "lower(sensor)"})
    plain, first, second = (replace(PER_MINUTE, source=s) for s in (READINGS, upper, lower))
    assert len({compute_fingerprint(asset) for asset in (plain, first, second)}) == len("123")
    changes = compare_parts(describe_parts(first), second)
    assert [change.part for change in changes] == ["source"]
    assert "unit = lower(sensor)" in str(changes[0])
    assert combined_effect(changes) is Effect.FORWARD
