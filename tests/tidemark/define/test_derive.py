"""Definitions of derived sources: their columns, and the message of each mistake."""

import linecache
from dataclasses import replace
from typing import Any

import pytest

from helpers.suite.pages import fences
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY, parse_duration
from tidemark.define import aggregates as agg
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.union import union
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform, windowed_asset
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import BoundedOutOfOrderness, MonotonicTimestamps
from tidemark.define.windows import Global, Session, Sliding, Tumbling
from till import sources, transforms

ORDERS = Source(
    name="orders",
    columns={"at": "TIMESTAMP NOT NULL", "id": "STRING", "amount": "BIGINT"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
)
PAYMENTS = Source(
    name="payments",
    columns={"at": "TIMESTAMP", "id": "STRING", "paid": "BIGINT"},
    event_time="at",
    watermark=MonotonicTimestamps(),
)
GIVEN: dict[str, Any] = {
    "name": "both",
    "left": ORDERS,
    "right": PAYMENTS,
    "on": ["id"],
    "within": Between("-1 minute", "5 minutes"),
    "rename": {"payments.at": "paid_at"},
}


def test_the_columns_of_a_join() -> None:
    found = join(**GIVEN)
    assert found.columns == {
        "id": "string",
        "at": "timestamp",
        "amount": "bigint",
        "paid_at": "timestamp",
        "paid": "bigint",
        "joined_at": "timestamp",
        "left_arrival": "bigint",
        "left_position": "bigint",
        "right_arrival": "bigint",
        "right_position": "bigint",
    }
    assert found.event_time == "joined_at"
    by_left = join(**GIVEN, event_time="left")
    assert by_left.event_time == "at"
    assert "joined_at" not in by_left.columns


def test_a_join_of_a_join_leaves_out_the_inner_positions() -> None:
    inner = join(**GIVEN)
    other = Source(
        name="returns",
        columns={"returned_at": "TIMESTAMP", "id": "STRING"},
        event_time="returned_at",
        watermark=MonotonicTimestamps(),
    )
    outer = join(
        name="all_three",
        left=inner,
        right=other,
        on=["id"],
        within=Between("0 seconds", "1 day"),
        rename={"both.joined_at": "first_joined_at"},
    )
    assert list(outer.columns) == [
        *("id", "at", "amount", "paid_at", "paid", "first_joined_at", "returned_at", "joined_at"),
        *("left_arrival", "left_position", "right_arrival", "right_position"),
    ]


def test_the_columns_of_a_union() -> None:
    found = union(name="all", of=[ORDERS, PAYMENTS])
    assert found.columns == {
        "at": "timestamp",
        "id": "string",
        "amount": "bigint",
        "paid": "bigint",
        "origin": "string",
        "origin_arrival": "bigint",
        "origin_position": "bigint",
    }


MINUTE = parse_duration("1 minute")


@pytest.mark.parametrize(
    ("given", "back"),
    [
        ({}, (0, 0)),
        ({"event_time": "left"}, (0, 5 * MINUTE)),
        ({"how": "left"}, (0, 5 * MINUTE)),
        ({"how": "left", "allowed_lateness": "2 minutes"}, (0, 7 * MINUTE)),
        ({"how": "full", "allowed_lateness": "2 minutes"}, (3 * MINUTE, 7 * MINUTE)),
        (
            {"how": "full", "within": Tumbling("3 minutes")},
            (3 * MINUTE - 1, 3 * MINUTE - 1),
        ),
    ],
)
def test_the_watermark_stays_behind_the_bases(given: dict[str, Any], back: tuple[int, int]) -> None:
    found = join(**{**GIVEN, **given})
    assert found.derivation.look_back == back
    time = parse_duration("100 days")
    assert found.watermark_of([time, time]) == time - max(back)
    assert found.watermark_of([time, None]) is None
    assert found.watermark_of([INFINITY, time]) == time - back[1]
    assert found.watermark_of([INFINITY, INFINITY]) == INFINITY


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"how": "right"}, "how must be 'inner', 'left' or 'full' (got 'right')"),
        ({"event_time": "right"}, "event_time must be 'latest' or 'left' (got 'right')"),
        ({"how": "full", "event_time": "left"}, "a full join also has rows without a left event"),
        ({"within": Sliding("1 hour", "10 minutes")}, "aggregate a union of the two sources"),
        ({"on": []}, "it has no keys"),
        ({"on": ["amount"]}, "the key 'amount' is not a column of 'payments': at, id, paid"),
        ({"right": ORDERS}, "'orders' can't be joined with itself"),
        ({"rename": {}}, "the columns orders.at and payments.at would both be 'at'"),
        ({"rename": {"payments.when": "x"}}, "rename has 'payments.when', which is not one of"),
        (
            {"rename": {"payments.at": "joined_at"}},
            "'joined_at', which the derivation adds, and payments.at would both be 'joined_at'",
        ),
        ({"name": "Paid"}, "'Paid' is not a valid source name"),
        ({"allowed_lateness": "-1 minute"}, "allowed_lateness must not be negative"),
        ({"idle": "0 seconds"}, "idle must be greater than zero (got '0 seconds')"),
        ({"idle": "1 minute"}, "'orders' and 'payments' record no heartbeats"),
    ],
)
def test_a_mistake_in_a_join(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        join(**{**GIVEN, **given})
    assert message in str(refused.value)


AS_OF: dict[str, Any] = {name: GIVEN[name] for name in ("name", "left", "right", "on", "rename")}


def test_the_columns_and_the_watermark_of_an_as_of_join() -> None:
    found = asof_join(**AS_OF, allowed_lateness="2 minutes")
    assert found.columns == {
        "id": "string",
        "at": "timestamp",
        "amount": "bigint",
        "paid_at": "timestamp",
        "paid": "bigint",
        "left_arrival": "bigint",
        "left_position": "bigint",
        "right_arrival": "bigint",
        "right_position": "bigint",
    }
    assert found.event_time == "at"
    assert found.derivation.look_back == (0, 2 * MINUTE)
    assert [table.role.value for table in found.own_tables] == [
        *("event log", "timeline", "dead-letter table", "versions table"),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"how": "full"}, "As-of join 'both': how must be 'inner' or 'left' (got 'full')."),
        ({"on": []}, "it has no keys"),
        ({"on": ["amount"]}, "the key 'amount' is not a column of 'payments'"),
        ({"right": ORDERS}, "'orders' can't be joined with itself"),
        ({"rename": {}}, "the columns orders.at and payments.at would both be 'at'"),
        ({"allowed_lateness": "-1 minute"}, "allowed_lateness must not be negative"),
    ],
)
def test_a_mistake_in_an_as_of_join(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        asof_join(**{**AS_OF, **given})
    assert message in str(refused.value)


def test_keys_of_two_types() -> None:
    other = Source(
        name="payments",
        columns={"paid_at": "TIMESTAMP", "id": "BIGINT"},
        event_time="paid_at",
        watermark=MonotonicTimestamps(),
    )
    given: dict[str, Any] = {**GIVEN, "right": other, "rename": {}}
    said = "has the type string in 'orders', but bigint in 'payments'"
    with pytest.raises(DefinitionError, match=said):
        join(**given)


def test_an_interval_that_ends_before_it_begins() -> None:
    with pytest.raises(DefinitionError, match="it ends before it begins"):
        Between("1 minute", "-1 minute")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"at": "TIMESTAMP", "amount": "STRING"}, "the type bigint in 'orders', but string in 'b'"),
        ({"at": "TIMESTAMP", "origin": "STRING"}, "'b' has a column 'origin'"),
    ],
)
def test_a_mistake_in_a_union(columns: dict[str, str], message: str) -> None:
    other = Source(name="b", columns=columns, event_time="at", watermark=MonotonicTimestamps())
    with pytest.raises(DefinitionError) as refused:
        union(name="all", of=[ORDERS, other])
    assert message in str(refused.value)


def test_a_union_needs_two_sources() -> None:
    with pytest.raises(DefinitionError, match="at least two sources, each given once"):
        union(name="all", of=[ORDERS])


def test_two_event_times_of_different_names_are_one_column() -> None:
    other = Source(
        name="b",
        columns={"happened": "TIMESTAMP", "id": "STRING"},
        event_time="happened",
        watermark=MonotonicTimestamps(),
    )
    found = union(name="all", of=[ORDERS, other])
    assert isinstance(found, DerivedSource)
    assert "happened" not in found.columns
    clash = Source(
        name="c",
        columns={"happened": "TIMESTAMP", "at": "TIMESTAMP"},
        event_time="happened",
        watermark=MonotonicTimestamps(),
    )
    with pytest.raises(
        DefinitionError, match="'c' has a column 'at' that is not its event time: rename"
    ):
        union(name="all", of=[ORDERS, clash])


def defined_by(page: str) -> dict[str, Any]:
    """Return what the Python blocks of a page define."""
    defined = dict[str, Any]()
    for number, block in enumerate(fences(page)):
        if block.language == "py":
            name = f"<{page} {number}>"
            # A fingerprint describes a function by its source.
            linecache.cache[name] = (len(block.text), None, block.text.splitlines(True), name)
            exec(compile(block.text, name, "exec"), defined)
    return defined


def test_the_code_of_the_page_defines_the_domain_of_the_tests() -> None:
    """The commands of the page are run with that domain: see `derived/test_commands.py`."""
    defined = defined_by("docs/joins.md")
    assert defined["paid_orders"] == sources.paid_orders
    assert defined["located_payments"] == sources.located_payments
    assert defined["movements"] == sources.movements
    assert defined["payments_in_cents"].columns == sources.payments_in_cents.columns
    assert compute_fingerprint(defined["unpaid_hourly"]) == compute_fingerprint(
        transforms.unpaid_hourly
    )


def test_the_code_of_the_page_about_chains() -> None:
    defined = defined_by("docs/chains.md")
    for name in ("orders_hourly", "busiest_hours"):
        assert compute_fingerprint(defined[name]) == compute_fingerprint(getattr(transforms, name))
    assert defined["hours"].columns == transforms.hours.columns


def counted(**given: Any) -> WindowedTransform:  # noqa: ANN401
    """Return an asset of each kind of aggregate."""
    options: dict[str, Any] = {
        "keys": ("id",),
        "window": Tumbling("1 hour"),
        "allowed_lateness": parse_duration("5 minutes"),
        "aggregates": {"n": agg.count()},
        **given,
    }
    return WindowedTransform(
        name="hourly", description="", source=ORDERS, function=lambda rows: rows, **options
    )


def test_the_columns_of_a_chain() -> None:
    aggregates = {
        "n": agg.count(),
        "total": agg.sum("amount"),
        "mean": agg.mean("amount"),
        "most": agg.max("amount"),
        "newest": agg.last("id"),
        "ids": agg.collect("id"),
        "top": agg.top_k("id", 3),
        "different": agg.count_distinct("id"),
        "spread": agg.stddev("amount"),
        "double": agg.sum("2 * amount"),
    }
    asset = counted(keys=("id", "day"), aggregates=aggregates)
    found = chain(name="hours", of=asset, types={"day": "date", "double": "BIGINT"})
    assert found.columns == {
        "id": "string",
        "day": "date",
        "n": "bigint",
        "total": "bigint",
        "mean": "double",
        "most": "bigint",
        "newest": "string",
        "ids": "array<string>",
        "top": "array<struct<value:string,count:bigint>>",
        "different": "bigint",
        "spread": "double",
        "double": "bigint",
        "window_first": "timestamp",
        "window_last": "timestamp",
    }
    assert found.event_time == "window_last"
    assert found.input_tables == [asset.published_table]
    assert found.base_sources == (ORDERS,)


def test_a_chain_of_changes() -> None:
    changes = chain(name="changes", of=counted(), rows="changes")
    assert changes.columns["retraction"] == "boolean"
    assert changes.derivation.look_back == (0,)
    aggregates = {"n": agg.count(), "total": agg.sum("n"), "mean": agg.mean("n")}
    options: dict[str, Any] = {"source": changes, "window": Tumbling("1 day"), "keys": ["id"]}

    def totals(changes: Any) -> Any:  # noqa: ANN401
        return changes

    found = windowed_asset(**options, aggregates=aggregates)(totals)
    assert [str(a) for a in found.aggregates.values()] == ["count(*)", "sum(n)", "mean(n)"]
    again = replace(found, name="again")
    for one, other in zip(found.aggregates.values(), again.aggregates.values(), strict=True):
        assert one.partial is other.partial
    with pytest.raises(DefinitionError) as refused:
        windowed_asset(**options, aggregates={"most": agg.max("n")})(totals)
    assert (
        "'most' (max(n)) can't be used with the chain 'changes', because only count, sum and"
        in str(refused.value)
    )
    with pytest.raises(DefinitionError, match="deduplicate can't be used with the chain"):
        windowed_asset(
            **options, aggregates=aggregates, deduplicate=Deduplicate(by="id", within="1 day")
        )(totals)
    joined: dict[str, Any] = {**GIVEN, "left": changes, "rename": {}}
    for derive in (lambda: union(name="all", of=[changes, ORDERS]), lambda: join(**joined)):
        with pytest.raises(DefinitionError, match="can't read the chain 'changes', whose rows"):
            derive()
    with pytest.raises(DefinitionError, match=r"rows must be 'final' or 'changes' \(got 'all'\)"):
        chain(name="hours", of=counted(), rows="all")


def test_the_watermark_of_a_chain_waits_until_nothing_can_change_a_window() -> None:
    assert chain(name="hours", of=counted()).derivation.look_back == (5 * MINUTE,)
    sessions = counted(window=Session("20 minutes"))
    assert chain(name="hours", of=sessions).derivation.look_back == (25 * MINUTE,)


@pytest.mark.parametrize(
    ("given", "types", "message"),
    [
        ({"keys": ("day",)}, {}, "the type of the key 'day' can't be determined from the"),
        (
            {"aggregates": {"n": agg.sum("2 * amount")}},
            {},
            "the type of 'n' (sum(2 * amount)) can't be determined from the definition of "
            "'hourly' or from its table. Specify it, as in types={'n': 'STRING'}",
        ),
        ({"window": Global()}, {}, "the window of 'hourly' is global"),
        ({}, {"m": "INT"}, "types has 'm', which is not among the columns of 'hourly': id, n"),
        ({}, {"n": "INTT"}, "'n' can't have the type 'INTT': 'INTT' is not a type"),
        (
            {"aggregates": {"reason": agg.count()}},
            {},
            "'hourly' has the column 'reason', which can't be a column of a source: Tidemark adds "
            "a column of this name to the late table. Rename it in 'hourly'",
        ),
        ({"aggregates": {"window_last": agg.count()}}, {}, "a chain adds a column of this name"),
    ],
)
def test_a_mistake_in_a_chain(given: dict[str, Any], types: dict[str, str], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        chain(name="hours", of=counted(**given), types=types)
    assert message in str(refused.value)
