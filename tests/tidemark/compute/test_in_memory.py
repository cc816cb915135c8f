"""Tests that windows computed in memory equal those that the engine computes."""

import random
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.runs import run_all
from helpers.data.support import MINUTE, PER_MINUTE, T0, renamed, same
from helpers.suite.pages import blocks
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.compute import in_memory
from tidemark.compute.compare import keys_as_json
from tidemark.compute.lifecycle import aligned
from tidemark.compute.windowing import as_of
from tidemark.define import aggregates as agg
from tidemark.define.aggregates.combiner import SLACK
from tidemark.define.aggregates.totals import ROUNDING
from tidemark.define.helper_columns import ADMITTED, IS_DELETED, SLOT, VERDICT
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.firings import Count, EachArrival, Never
from tidemark.define.triggers.trigger import Trigger
from tidemark.define.windows import Global, Session
from tidemark.engine.queries.requests import fetch_dataframe, to_dataframe
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.kinds import Cause, Increment, Replacement
from tidemark.store.event_log.log import Log
from tidemark.store.rows import INSTANT
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity


def totals(kind: pa.DataType) -> pa.DataType:
    return pa.struct(
        {"sum": kind, "count": pa.int64(), "plus": kind, "minus": kind, "over": pa.bool_()}
    )


MEANS = pa.struct(
    [
        *((name, pa.float64()) for name in ("sum", "plus", "like")),
        *((name, pa.decimal128(38, 0)) for name in ("high", "low")),
        ("count", pa.int64()),
    ]
)
KINDS: Mapping[str, pa.DataType] = {
    "window_start": INSTANT,
    "window_end": INSTANT,
    "sensor": pa.string(),
    "place": pa.int32(),
    VERDICT: pa.int8(),
    ADMITTED: pa.bool_(),
    SLOT: pa.int64(),
    "events": pa.int64(),
    "last_arrival": pa.int64(),
    "n": pa.int64(),
    "total": totals(pa.decimal128(20, 2)),
    "whole": totals(pa.int64()),
    "double": totals(pa.float64()),
    "average": MEANS,
    "place_double": pa.float64(),
    "least": pa.float64(),
    "longest": pa.string(),
    "newest": INSTANT,
    "dearest": pa.decimal128(10, 2),
    "spread": pa.struct({"low": pa.float64(), "high": pa.float64()}),
}


def documented_aggregate() -> agg.Aggregate:
    """Return the aggregate of docs/aggregates.md, for the column `value`."""
    texts = [text for language, _, text in blocks("docs/aggregates.md") if language == "python"]
    names: dict[str, Any] = {}
    exec(texts[0].replace("celsius", "value"), names)
    return names["spread"]


SPREAD = documented_aggregate()
SPAN = {"low": 1.0, "high": 2.5}
SUM = agg.ArrowMerge("sum")
WIDE = replace(
    PER_MINUTE,
    name="wide",
    keys=("sensor", "place"),
    aggregates={
        "n": agg.count(),
        "total": agg.sum("price"),
        "whole": agg.sum("n"),
        "double": agg.sum("value"),
        "average": agg.mean("value"),
        "least": agg.min("value"),
        "longest": agg.max("sensor"),
        "newest": agg.max("ts"),
        "dearest": agg.max("price"),
        "spread": SPREAD,
    },
    expectations=(),
    function=same,
)
TRIGGERS = (
    Trigger(),
    Trigger(early=EachArrival()),
    Trigger(late=Never()),
    Trigger(early=EachArrival(), late=Never()),
)


def maybe(chance: random.Random, value: Any) -> Any:  # noqa: ANN401
    return None if chance.random() < 0.15 else value


def added(value: Any, *, over: bool = False) -> dict[str, Any]:  # noqa: ANN401
    """Return the totals of one value, or of none."""
    ends: dict[str, Any] = {"plus": None, "minus": None}
    if isinstance(value, float):
        ends["plus"] = abs(value)
    elif value is not None:
        ends["plus" if value >= 0 else "minus"] = value
    return {"sum": value, "count": int(value is not None), "over": over, **ends}


def a_partial(chance: random.Random) -> dict[str, Any]:
    start = T0 + chance.randrange(12) * MINUTE
    verdict = chance.choice([0, 0, 0, 1, 1, 2, 3])
    arrival = chance.randrange(8)
    bound = None if verdict == 3 else start
    return {
        "window_start": bound,
        "window_end": None if bound is None else bound + MINUTE,
        "sensor": maybe(chance, chance.choice(["a", 'b"\\', "ü"])),
        "place": maybe(chance, chance.randrange(2)),
        VERDICT: verdict,
        ADMITTED: verdict < 2 or chance.random() < 0.2,
        SLOT: arrival + 1 if verdict else chance.choice([0, arrival + 1]),
        "events": chance.randrange(1, 9),
        "last_arrival": arrival,
        "n": chance.randrange(9),
        "total": maybe(chance, added(Decimal(chance.randrange(-(10**6), 10**6)) / 100)),
        "whole": maybe(chance, added(chance.randrange(-(1 << 40), 1 << 40))),
        "double": maybe(chance, added(chance.random() - 0.5)),
        "average": maybe(chance, added(maybe(chance, chance.random()))),
        "place_double": 0.5,
        "least": maybe(chance, chance.random()),
        "longest": maybe(chance, chance.choice(["a", "b", "ü", "z"])),
        "newest": maybe(chance, start + chance.randrange(MINUTE)),
        "dearest": maybe(chance, Decimal(chance.randrange(10**6)) / 100),
        "spread": maybe(chance, {"low": chance.random(), "high": 1 + chance.random()}),
    }


def some_partials(seed: int, count: int = 600) -> pa.Table:
    chance = random.Random(seed)
    rows = [a_partial(chance) for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=pa.schema(dict(KINDS)))


def between(before: int | None, after: int | None) -> Increment:
    """Return an increment of arrivals 4 to 7 with the watermarks around it, in minutes."""

    def at(arrival: int, minutes: int | None) -> Coverage:
        ahead = minutes is not None and minutes > 100
        mark = None if minutes is None else INFINITY if ahead else T0 + minutes * MINUTE + 5
        return Coverage(TimelinePosition(arrival, mark))

    return Increment(commit_number=3, before=at(3, before), after=at(7, after))


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    """Return sorted rows, without the digits that depend on the order of addition."""
    told = rows.select(sorted(rows.column_names)).to_pylist()
    for row in told:
        row |= {f"slack of {name}": slack for name, slack in row.pop(SLACK, {}).items()}
    plain = [{n: round(v, 9) if isinstance(v, float) else v for n, v in r.items()} for r in told]
    return sorted(plain, key=repr)


INCREMENT = between(4, 7)
MARKERS = (INCREMENT, between(3, 9), between(None, 6), between(5, 200))
CAUSES = (Cause.BACKFILL, Cause.CORRECTION, Cause.ERASURE, Cause.BACKFILL)


def assert_same_rows(rows: pa.Table, engines: DataFrame) -> None:
    names = [n for n in rows.column_names if n not in ("as_of", "commit_number", "quality")]
    assert {SLACK, IS_DELETED} < {*names}
    fetched = fetch_dataframe(
        engines.withColumn("revision", F.col("revision").cast("int")).select(names)
    )
    for name in {*names} - {SLACK}:
        assert rows.schema.field(name).type == fetched.schema.field(name).type, name
    assert ordered(rows.select(names)) == ordered(fetched)


@pytest.mark.parametrize("case", range(len(TRIGGERS)))
def test_rows_computed_in_memory_equal_the_engines(shared: Warehouse, case: int) -> None:
    warehouse, marker = shared, MARKERS[case]
    transform = replace(WIDE, trigger=TRIGGERS[case])
    partials = some_partials(seed=case)
    assert in_memory.is_supported(transform, marker)
    found = in_memory.compute_changes(partials, transform, marker)
    assert found is not None
    assert found.num_rows > 20
    stored = to_dataframe(warehouse.spark, unsettled(partials, transform, marker))
    now, then = as_of(marker.after), as_of(marker.before)
    log = Log(warehouse, transform.source)
    assert_same_rows(found, aligned.compute_changes(stored, transform, log, now, then))
    replacement = Replacement(cause=CAUSES[case], commit_number=3, after=marker.after)
    replaced = in_memory.compute_changes(partials, transform, replacement)
    assert replaced is not None
    assert replaced.num_rows >= found.num_rows
    every_partial = to_dataframe(warehouse.spark, partials)
    engines = aligned.finish_windows(every_partial, transform, log, now)
    assert_same_rows(replaced, engines.withColumn(IS_DELETED, F.lit(False)))
    keys = fetch_dataframe(
        to_dataframe(warehouse.spark, found).select(keys_as_json(transform.keys).alias("keys"))
    )
    assert in_memory.keys_as_json(found, transform.keys) == keys["keys"].combine_chunks()


def planted(
    column: str, *values: object, start: int = T0 + 6 * MINUTE, end: int = T0 + 7 * MINUTE
) -> pa.Table:
    """Return partials of one window whose column starts with the given values."""
    partials = some_partials(seed=1, count=40)
    column_of = [*values, *partials[column].to_pylist()[len(values) :]]
    place = partials.column_names.index(column)
    fires = partials.set_column(place, column, pa.array(column_of, KINDS[column]))
    for name, value in ((VERDICT, 0), (ADMITTED, True), (SLOT, 0)):
        same_value = pa.repeat(pa.scalar(value, KINDS[name]), len(column_of))
        fires = fires.set_column(fires.column_names.index(name), name, same_value)
    for name, value in {"window_start": start, "window_end": end}.items():
        ends = pa.repeat(pa.scalar(value, pa.int64()), len(column_of)).cast(INSTANT)
        fires = fires.set_column(fires.column_names.index(name), name, ends)
    return fires


def test_values_only_the_engine_can_decide_are_left_to_it() -> None:
    # NaN is the greatest value in the engine, but not in memory.
    assert in_memory.compute_changes(planted("least", float("nan")), WIDE, INCREMENT) is None
    # Only the engine decides which of two equal zeros is the least.
    assert in_memory.compute_changes(planted("least", -0.0), WIDE, INCREMENT) is None
    assert in_memory.compute_changes(planted("least", 0.0), WIDE, INCREMENT) is not None
    for large in (added(1 << 61), added(-(1 << 61))):
        assert in_memory.compute_changes(planted("whole", large, large), WIDE, INCREMENT) is None
    assert in_memory.compute_changes(planted("whole", added(1)), WIDE, INCREMENT) is not None
    for name in ("total", "whole", "double"):
        over = planted(name, added(None, over=True))
        assert in_memory.compute_changes(over, WIDE, INCREMENT) is None
    by_time = replace(WIDE, keys=("newest",), aggregates={"n": agg.count()})
    rows = in_memory.compute_changes(planted("whole", added(1)), by_time, INCREMENT)
    assert rows is not None
    assert in_memory.keys_as_json(rows, by_time.keys) is None
    by_double = replace(WIDE, keys=("place_double",), aggregates={"n": agg.count()})
    assert in_memory.compute_changes(planted("whole", added(1)), by_double, INCREMENT) is None


INF, NAN = float("inf"), float("nan")
NASTY: Mapping[str, tuple[Any, ...]] = {
    "double": tuple(map(added, (INF, -INF, NAN, -0.0, 1e308, 1e308, 5e-324, None))),
    "average": tuple(map(added, (INF, -0.0, 1e308, -1e308, 5e-324, None))),
    "whole": tuple(map(added, (0, -1, 1 << 53, (1 << 53) + 1, -(1 << 60), None))),
    "total": tuple(map(added, (Decimal("0.00"), Decimal("1e17"), Decimal("-0.01"), None))),
    "least": (INF, -INF, 1e308, 5e-324, 0.0, None),
    "longest": ("", "a", "A", "ü", "\U0001f600", "\uffff", "a\0", None),
    "newest": (BEGINNING, T0, T0 + 1, INFINITY, None),
    "dearest": (Decimal("0.00"), Decimal("-99999999.99"), Decimal("99999999.99"), None),
    "spread": ({"low": -INF, "high": INF}, {"low": 5e-324, "high": 0.0}, {"low": INF, "high": INF}),
}


@pytest.mark.parametrize("column", NASTY)
def test_unusual_values_equal_the_engines(shared: Warehouse, column: str) -> None:
    transform = replace(WIDE, aggregates={column: WIDE.aggregates[column]})
    partials = planted(column, *NASTY[column], *NASTY[column][::-1])
    found = in_memory.compute_changes(partials, transform, INCREMENT)
    assert found is not None
    now, then = as_of(INCREMENT.after), as_of(INCREMENT.before)
    log = Log(shared, transform.source)
    rows = aligned.compute_changes(to_dataframe(shared.spark, partials), transform, log, now, then)
    told = [*transform.by_window, column]
    assert repr(ordered(found.select(told))) == repr(ordered(fetch_dataframe(rows.select(told))))


def test_keys_are_written_as_json() -> None:
    columns = {"sensor": ['b"\\', "ü", None], "place": [1, None, 2], "open": [True, False, None]}
    rows = pa.table(columns)
    assert in_memory.keys_as_json(rows, ["place", "sensor"]) == pa.array(
        [
            r'{"place":1,"sensor":"b\"\\"}',
            '{"place":null,"sensor":"ü"}',
            '{"place":2,"sensor":null}',
        ]
    )
    assert in_memory.keys_as_json(rows, ["open"]) == pa.array(
        ['{"open":true}', '{"open":false}', '{"open":null}']
    )
    assert in_memory.keys_as_json(rows, []) == pa.array(["{}"] * 3)


def test_keys_with_any_character_are_written_as_by_the_engine(spark: SparkSession) -> None:
    """Texts that the engine writes otherwise are left to it, and so are all rows with them."""
    characters = [*map(chr, range(0x250)), "\u2028", "\ufeff", "\uffff", "\U0001f600", "\\u001f"]
    rows = pa.table({"k": [f"a{c}b" for c in characters]})
    texts = fetch_dataframe(
        to_dataframe(spark, rows).select("k", keys_as_json(["k"]).alias("json"))
    )
    by_engine = dict(zip(*texts.to_pydict().values(), strict=True))
    assert len(by_engine) == len(characters)
    for n, text in enumerate(rows["k"].to_pylist()):
        found = in_memory.keys_as_json(rows.slice(n, 1), ["k"])
        assert (found is None) == (text[1] < " ")
        assert found is None or found.to_pylist() == [by_engine[text]]
    assert in_memory.keys_as_json(rows, ["k"]) is None


def test_the_slack_of_a_result_grows_with_its_summands() -> None:
    one_row = replace(WIDE, keys=())
    values = [8.0, -2.0, None, *[None] * 37]
    for name in ("double", "average"):
        partials = planted(name, *map(added, values))
        transform = replace(one_row, aggregates={name: WIDE.aggregates[name], "n": agg.count()})
        rows = in_memory.compute_changes(partials, transform, INCREMENT)
        assert rows is not None
        (row,) = rows.to_pylist()
        assert row[name] == {"double": 6.0, "average": 3.0}[name]
        # Of two summands, whose sizes add up to 10; the quotient is rounded once more.
        summands = {"double": 2 * 10, "average": 3 * 10 / 2}[name]
        assert row[SLACK] == {name: pytest.approx(ROUNDING * summands), "n": 0.0}


def test_a_global_window_is_final_when_the_source_ends() -> None:
    whole = planted("whole", added(1), start=BEGINNING, end=INFINITY)
    transform = replace(WIDE, window=Global(), keys=(), aggregates={"n": agg.count()})
    assert transform.allowed_lateness > 0
    rows = in_memory.compute_changes(whole, transform, between(5, 200))
    assert rows is not None
    assert rows["final"].to_pylist() == [True]


def test_in_memory_computation_supports_only_some_definitions() -> None:
    def asked(marker: CommitInfo = INCREMENT, **fields: object) -> bool:
        return in_memory.is_supported(replace(WIDE, **fields), marker)

    assert asked()
    assert not asked(window=Session("1 minute"))
    assert not asked(trigger=Trigger(early=Count(3)))
    for other in (agg.variance("value"), agg.first("value"), agg.count_distinct("value")):
        assert not asked(aggregates={"n": agg.count(), "other": other})
    undeclared = replace(SPREAD, arrow_merge=None)
    assert not asked(aggregates={"n": agg.count(), "spread": undeclared})
    assert asked(aggregates={"n": agg.count(), "spread": SPREAD})
    for known in (agg.sum("value"), agg.mean("value")):
        assert known.signed is not None
        assert not asked(aggregates={"subtracts": known.signed("is_retraction")})
    assert asked(aggregates={"mean": cloudpickle.loads(cloudpickle.dumps(agg.mean("value")))})
    ahead = Coverage(
        TimelinePosition(3, T0), (BackfilledRange(T0, T0 + MINUTE, TimelinePosition(5, T0)),)
    )
    assert not asked(replace(INCREMENT, before=ahead))
    assert asked(Replacement(cause=Cause.BACKFILL, ranges=((T0, T0 + MINUTE),)))
    assert not asked(Replacement(cause=Cause.BACKFILL, after=ahead))


def test_a_small_increment_sends_one_query(
    logged: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(rows: DataFrame) -> pa.Table:
        found = fetch_dataframe(rows)
        asked.append(found.num_rows)
        return found

    asset = renamed(replace(PER_MINUTE, allowed_lateness=60 * MINUTE), "asks_once")
    monkeypatch.setattr("tidemark.compute.materialize.fetch_dataframe", counted)
    done = run_all(logged, asset, 1)
    # An event without a time goes to the late table, which takes two more queries.
    assert len(asked) == len(done) + 2 * sum(bool(d.no_event_time) for d in done)
    monkeypatch.undo()
    assert check_parity(logged, asset).is_equal


def test_an_own_aggregate_that_declares_its_arrow_merge_needs_no_engine(
    logged: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory_rows: list[int] = []
    compute_changes = in_memory.compute_changes

    def counted(partials: pa.Table, *others: Any) -> pa.Table | None:  # noqa: ANN401
        rows = compute_changes(partials, *others)
        in_memory_rows.append(0 if rows is None else rows.num_rows)
        return rows

    monkeypatch.setattr(in_memory, "compute_changes", counted)
    aggregates = {"n": agg.count(), "spread": SPREAD}
    declared = renamed(replace(PER_MINUTE, aggregates=aggregates, expectations=()), "declared")
    run_all(logged, declared, 1)
    assert sum(in_memory_rows) > 0
    in_memory_rows.clear()
    aggregates = {"n": agg.count(), "spread": replace(SPREAD, arrow_merge=None)}
    undeclared = replace(declared, aggregates=aggregates)
    undeclared = renamed(undeclared, "undeclared")
    run_all(logged, undeclared, 1)
    assert in_memory_rows == []
    columns = [*declared.by_window, *aggregates, "events", "late_events", "revision", "timing"]
    rows = [
        fetch_dataframe(
            logged.read_frame(asset.published_table).select(columns).orderBy(*declared.by_window)
        )
        for asset in (declared, undeclared)
    ]
    assert rows[0].num_rows > 0
    assert rows[0] == rows[1]
    assert check_parity(logged, declared).is_equal


def test_an_arrow_merge_names_fields_of_the_partials() -> None:
    misnamed = replace(SPREAD, arrow_merge=agg.ArrowMerge({"lowest": "min"}))
    transform = replace(WIDE, aggregates={"spread": misnamed})
    message = "`arrow_merge` of aggregate 'spread\\(value\\)' has the field 'lowest'"
    with pytest.raises(DefinitionError, match=message):
        in_memory.compute_changes(planted("spread", SPAN), transform, INCREMENT)


def test_values_of_an_own_aggregate_are_left_to_the_engine_if_arrow_differs() -> None:
    transform = replace(WIDE, aggregates={"spread": SPREAD})
    for low in (float("nan"), -0.0):
        partials = planted("spread", {**SPAN, "low": low})
        assert in_memory.compute_changes(partials, transform, INCREMENT) is None
    total = agg.Aggregate("total", lambda: F.sum("n"), F.sum, F.abs, arrow_merge=SUM)
    transform = replace(WIDE, aggregates={"n": total})
    assert in_memory.compute_changes(planted("n", 1 << 62, 1), transform, INCREMENT) is None
    assert in_memory.compute_changes(planted("n", 1 << 60, 1), transform, INCREMENT) is not None
    picky = replace(SUM, accepts=lambda partials: len(partials) > 1000)
    transform = replace(WIDE, aggregates={"n": replace(total, arrow_merge=picky)})
    assert in_memory.compute_changes(planted("n", 1), transform, INCREMENT) is None


def test_slack_is_declared_for_both_merges_or_for_none() -> None:
    with pytest.raises(DefinitionError, match="must be given together"):
        replace(agg.sum("value"), slack=None)
    with pytest.raises(DefinitionError, match="must be given together"):
        replace(agg.sum("value"), arrow_merge=SUM)


def unsettled(partials: pa.Table, transform: WindowedTransform, marker: CommitInfo) -> pa.Table:
    """Return the partials of windows that were still open before an increment."""
    mark = marker.before.at.watermark
    ends = partials["window_end"].cast(pa.int64()).to_pylist()
    if mark is None:
        return partials
    keep = [end is not None and end > mark - transform.allowed_lateness for end in ends]
    return partials.filter(pa.array(keep))
