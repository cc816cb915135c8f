"""Tests that the definition API refuses wrong arguments in one line that names the parameter.

The cases come from the signatures, so new parameters are tested too.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

import tidemark as tm
from helpers.data.support import PER_MINUTE, READINGS
from tidemark import api
from tidemark import expect as quality
from tidemark.base.errors import DefinitionError, TidemarkError
from tidemark.dagster import dagster_asset
from tidemark.define import aggregates as agg
from tidemark.define.rollup import rollup
from tidemark.define.transform import windowed_asset

VALID: Mapping[Callable[..., Any], Mapping[str, Any]] = {
    tm.Source: {
        "name": "orders",
        "columns": {"at": "TIMESTAMP", "city": "STRING"},
        "event_time": "at",
        "watermark": tm.Perfect(),
    },
    tm.Mask: {},
    tm.Tokenize: {},
    tm.Drop: {},
    tm.Tumbling: {"size": "1 hour"},
    tm.Sliding: {"size": "1 hour", "slide": "10 minutes"},
    tm.Cumulating: {"size": "1 day", "step": "1 hour"},
    tm.Session: {"gap": "30 minutes"},
    tm.Calendar: {"unit": "day"},
    tm.Global: {},
    tm.BoundedOutOfOrderness: {"bound": "1 hour"},
    tm.MonotonicTimestamps: {},
    tm.Punctuated: {"expression": "at"},
    tm.PerPartition: {"column": "city", "bound": "1 hour"},
    tm.Perfect: {},
    tm.Manual: {},
    tm.Trigger: {},
    tm.Every: {"interval": "1 minute"},
    tm.Count: {"n": 1},
    tm.EachArrival: {},
    tm.Never: {},
    tm.Deduplicate: {"by": "id", "within": "1 day"},
    agg.ArrowMerge: {"functions": "sum"},
    agg.count: {},
    agg.sum: {"column": "x"},
    agg.min: {"column": "x"},
    agg.max: {"column": "x"},
    agg.mean: {"column": "x"},
    agg.variance: {"column": "x"},
    agg.stddev: {"column": "x"},
    agg.first: {"column": "x"},
    agg.last: {"column": "x"},
    agg.approx_count_distinct: {"column": "x"},
    agg.count_distinct: {"column": "x"},
    agg.quantile: {"column": "x", "q": 0.5},
    agg.top_k: {"column": "x", "k": 3},
    agg.top_n: {"column": "x", "n": 3},
    agg.last_n: {"column": "x", "n": 3},
    agg.collect: {"column": "x"},
    agg.python: {
        "name": "mine",
        "column": "x",
        "partial": len,
        "merge": sum,
        "finish": str,
        "partial_type": "BIGINT",
        "result_type": "STRING",
    },
    quality.between: {"column": "x", "min_value": 0},
    quality.not_null: {"column": "x"},
    quality.one_of: {"column": "x", "values": [1]},
    quality.column_greater: {"column": "x", "than": "y"},
    quality.matches_log: {},
    quality.unique_key: {},
    quality.max_change_after_close: {"share": 0.1},
    quality.volume_within: {"share": 0.1, "of": "yesterday"},
    quality.late_share_below: {"share": 0.1},
    quality.no_gap: {"windows": 3},
    windowed_asset: {
        "source": READINGS,
        "window": tm.Tumbling("1 hour"),
        "aggregates": {"n": agg.count()},
    },
    tm.sql_asset: {
        "name": "summed",
        "source": READINGS,
        "sql": f"""
            SELECT COUNT(*) AS n
            FROM TUMBLE(TABLE {READINGS.name}, DESCRIPTOR({READINGS.event_time}), '1 hour')
            GROUP BY window_start, window_end
        """,
    },
    rollup: {"of": PER_MINUTE, "name": "rolled", "window": tm.Tumbling("1 hour")},
    tm.Between: {"start": "0 seconds", "end": "1 hour"},
    tm.join: {
        "name": "joined",
        "left": READINGS,
        "right": replace(READINGS, name="others"),
        "on": ["sensor"],
        "within": tm.Tumbling("1 hour"),
        "rename": {"right.ts": "other_ts", "right.value": "other_value"},
    },
    tm.asof_join: {
        "name": "joined",
        "left": READINGS,
        "right": replace(READINGS, name="others"),
        "on": ["sensor"],
        "rename": {"right.ts": "other_ts", "right.value": "other_value"},
    },
    tm.union: {"name": "all_readings", "of": [READINGS, replace(READINGS, name="others")]},
    tm.chain: {"of": PER_MINUTE, "name": "chained"},
    tm.row_asset: {"source": READINGS},
    tm.secret: {"reference": "env:KEY"},
    tm.export_contract: {"asset": PER_MINUTE},
    dagster_asset: {
        "definition": PER_MINUTE,
        "partitions_def": dg.DailyPartitionsDefinition("2026-01-01"),
    },
}
WRONG: list[object] = [
    *(object(), None, True, -1, 3600, 0.5, float("nan"), 10**30, b"bytes", "", "a\nb", "x" * 999),
    *(["x"], [1], {"x": 1}, {1: "x"}, (), len, dict, tm.Tumbling, agg.count(), READINGS),
    *(timedelta(-1), timedelta(days=999_999), complex(1, 1)),
]


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    return [p for p in found if p.kind not in variable]


CASES = [(function, p.name) for function in VALID for p in parameters(function)]


def named(function: Callable[..., Any]) -> str:
    return function.__name__


def test_each_public_definition_is_tested() -> None:
    public = [
        value
        for module in (api, agg, quality)
        for name in module.__all__
        if callable(value := getattr(module, name)) and not inspect.isabstract(value)
    ]
    base = {"Aggregate", "Expectation", "Watermark", "Window", "forward", "Firing"}
    results = {"Definition", "DerivedSource", "RollUp", "Secret", "WindowedTransform"}
    run_time = {"Settings", "Warehouse", "read"}
    errors = {name for name in api.__all__ if name.endswith("Error")}
    untested = base | results | run_time | errors
    assert {p.__name__ for p in public} - untested <= {f.__name__ for f in VALID}


@pytest.mark.parametrize(
    ("function", "parameter"), CASES, ids=[f"{named(f)}-{p}" for f, p in CASES]
)
def test_a_wrong_value_is_refused_with_the_parameters_name(
    function: Callable[..., Any], parameter: str
) -> None:
    for value in WRONG:
        try:
            made = function(**{**VALID[function], parameter: value})
            if function is windowed_asset:
                made(lambda rows: rows)
        except dg.DagsterInvalidDefinitionError:
            # Dagster checks the values of its own options.
            assert function is dagster_asset
        except TidemarkError as error:
            said = str(error)
            assert "\n" not in said
            assert said.endswith(".")
            assert len(said) < 2500
            if type(value) is object:
                assert f"{named(function)}: {parameter} must be " in said
                assert "(got <object object at" in said


@pytest.mark.parametrize("function", VALID, ids=named)
def test_unknown_and_missing_arguments_are_named(function: Callable[..., Any]) -> None:
    with pytest.raises(DefinitionError, match=rf"^{named(function)} has no parameter 'lenght'\. "):
        function(**VALID[function], lenght=1)
    for left_out in VALID[function]:
        if (p := inspect.signature(function).parameters[left_out]).default is p.empty:
            rest = {k: v for k, v in VALID[function].items() if k != left_out}
            with pytest.raises(
                DefinitionError, match=rf"^{named(function)}: missing .*'{left_out}'"
            ):
                function(**rest)


UNTYPED: Any = tm
"""The module for a user without a type checker."""
WINDOW_CLASS: dict[str, Any] = {"window": tm.Tumbling}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: UNTYPED.Tumbling(3600),
            "Tumbling: size must be a string or a timedelta (got 3600).",
        ),
        (
            lambda: UNTYPED.Tumbling(sise="1 hour"),
            "Tumbling has no parameter 'sise'. Its parameters are size, offset. Did you mean "
            "'size'?",
        ),
        (
            lambda: windowed_asset(**VALID[windowed_asset], keys="shop"),
            "windowed_asset: keys must be a list of strings (got 'shop'). Write ['shop'].",
        ),
        (
            lambda: windowed_asset(**{**VALID[windowed_asset], **WINDOW_CLASS}),
            "windowed_asset: window must be a Window (got the class Tumbling itself). Write "
            "Tumbling(…).",
        ),
    ],
)
def test_the_message_says_what_to_write(call: Callable[[], object], said: str) -> None:
    with pytest.raises(DefinitionError) as error:
        call()
    assert str(error.value) == said


def test_a_month_as_a_size_points_to_calendar_windows() -> None:
    with pytest.raises(DefinitionError, match=r"use Calendar\('month'\)"):
        tm.Tumbling("1 month")


def test_a_timedelta_equals_the_same_duration_as_text() -> None:
    assert tm.Tumbling(timedelta(hours=1)) == tm.Tumbling("1 hour")
