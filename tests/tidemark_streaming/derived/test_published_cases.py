"""Joins and unions give the values that the tests and pages of other engines publish.

Each file says where its values come from, and what differs here.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemark.base.instants import instant, iso
from tidemark.define import aggregates as agg
from tidemark.define import watermarks
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.union import union
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.run.runner import backfill
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import derived_parity
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

REGISTERED = False
# They take a minute and a half.
pytestmark = pytest.mark.slow
CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
OPTIONS = ("how", "allowed_lateness", "where", "event_time")
STRATEGIES: dict[str, Callable[..., watermarks.Watermark]] = {
    "manual": watermarks.Manual,
    "perfect": watermarks.Perfect,
    "monotonous": watermarks.MonotonicTimestamps,
    "bounded_out_of_orderness": watermarks.BoundedOutOfOrderness,
}
TICK = 1_000
"""Each arrival moves the clock by a millisecond."""

Case = Mapping[str, Any]


def read_sources(case: Case) -> dict[str, Source]:
    found = dict[str, Source]()
    for name, given in case["sources"].items():
        ((kind, argument),) = given["watermark"].items()
        strategy = STRATEGIES[kind]
        mark = strategy(argument) if isinstance(argument, str) else strategy()
        found[name] = Source(
            name=name,
            columns=given["columns"],
            event_time=given["event_time"],
            watermark=mark,
        )
    return found


def read_arrivals(case: Case, sources: Mapping[str, Source]) -> dict[str, list[ScenarioArrival]]:
    found, clock = {name: list[ScenarioArrival]() for name in sources}, 0
    for item in case["arrivals"]:
        clock += TICK
        columns = sources[item["source"]].columns
        rows = tuple(
            tuple(
                instant(row[c]) if kind == "timestamp" and row.get(c) else row.get(c)
                for c, kind in columns.items()
            )
            for row in item.get("rows", ())
        )
        mark = instant(item["watermark"]) if "watermark" in item else None
        found[item["source"]].append(
            ScenarioArrival(rows, clock, mark, ends=item.get("end", False))
        )
    if not case.get("open", False):
        for arrivals in found.values():
            clock += TICK
            arrivals.append(ScenarioArrival((), clock, ends=True))
    return found


def read_derived(case: Case, sources: Mapping[str, Source]) -> DerivedSource:
    ((name, given),) = case["derived"].items()
    ((kind, options),) = given.items()
    if kind == "union":
        return union(name=name, of=[sources[each] for each in options["of"]])
    left, right = sources[options["left"]], sources[options["right"]]
    within = options["within"]
    return join(
        name=name,
        left=left,
        right=right,
        on=options["on"],
        within=Tumbling(**within["tumbling"]) if isinstance(within, dict) else Between(*within),
        rename={
            f"{side.name}.{column}": f"{letter}_{column}"
            for side, letter in ((left, "l"), (right, "r"))
            for column in side.columns
            if column not in options["on"]
        },
        **{name: options[name] for name in OPTIONS if name in options},
    )


def ingest_all(warehouse: Warehouse, case: Case, each: int | None) -> DerivedSource:
    """Ingest the sources completely, and then the derived source, `each` steps at a time."""
    sources = read_sources(case)
    for name, arrivals in read_arrivals(case, sources).items():
        list(ingest(warehouse, MemoryConnector(sources[name], arrivals), batch=None))
    derived = read_derived(case, sources)
    connector = DerivedConnector(derived, warehouse.location, warehouse.database)
    list(ingest(warehouse, connector, batch=each))
    return derived


def column_of(name: str, derived: DerivedSource) -> str:
    """Return the column of an expected value, as in `l.id` or `at`."""
    if name == "at":
        return derived.event_time
    column = name.replace(".", "_")
    return column if column in (*derived.columns, "arrival") else name.rpartition(".")[2]


def plain(value: Any) -> Any:  # noqa: ANN401
    return iso(instant(value)) if hasattr(value, "isoformat") else value


def count_rows(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


def check_rows(
    expected: Sequence[Case], rows: Sequence[dict[str, Any]], derived: DerivedSource
) -> None:
    """Compare the columns that the expected rows name; all rows must be listed."""
    assert len(rows) == len(expected)
    for names in {tuple(sorted(each)) for each in expected}:
        found = [{n: plain(r[column_of(n, derived)]) for n in names} for r in rows]
        wanted = [each for each in expected if tuple(sorted(each)) == names]
        missing = count_rows(wanted) - count_rows(found)
        assert not missing, (missing, found)


def aggregates_of(case: Case) -> dict[str, Any]:
    return {
        name: agg.count() if given == "count" else agg.collect(given["collect"])
        for name, given in case["transform"]["aggregates"].items()
    }


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_published_values(warehouse: Warehouse, file: Path) -> None:
    case = yaml.load(file.read_text(), yaml.BaseLoader)
    derived = ingest_all(warehouse, _typed(case), CASES.index(file) % 3 or None)
    expect = case["expect"]
    rows = warehouse.take(derived.log_table).to_pylist()
    for wanted in expect.get("derived", {}).values():
        check_rows([_values(each) for each in wanted], rows, derived)
    for wanted in expect.get("unjoined", {}).values():
        dead = warehouse.take(derived.dead_letters_table).to_pylist()
        assert len(dead) == len(wanted)
        for each in wanted:
            matching = [d for d in dead if f'"id":"{each["id"]}"' in d["bytes"].decode()]
            reasons = [d["reason"] for d in matching]
            sides = [each["source"]] if "source" in each else [b.name for b in derived.bases]
            reason = each.get("reason", "too_late")
            assert any(f"{reason} in {side}" in reasons for side in sides), each
    assert derived_parity(warehouse, derived).equal
    if "transform" in case:
        given = case["transform"]
        transform = WindowedTransform(
            name="result",
            description="",
            source=derived,
            allowed_lateness=0,
            keys=tuple(column_of(key, derived) for key in given["keys"]),
            window=Tumbling(**given["window"]["tumbling"]),
            aggregates=aggregates_of(case),
            function=lambda rows: rows,
        )
        backfill(warehouse, transform)
        windows = warehouse.take(transform.table).to_pylist()
        for each in expect["windows"]:
            assert _has(windows, each, derived), each
        assert len(windows) == len(expect["windows"])


def test_all_cases_are_there() -> None:
    assert len(CASES) == 23


def _typed(case: Case) -> Case:
    """Return a case with the types of YAML in its options."""
    return {**case, "open": case.get("open") == "true"}


def _values(row: Case) -> dict[str, Any]:
    """Return an expected row with numbers and nulls."""
    return {
        name: None
        if value in ("null", "")
        else int(value)
        if name == "arrival"
        else iso(instant(value))
        if name == "at"
        else value
        for name, value in row.items()
        if name != "retraction"
    }


def _has(windows: Sequence[dict[str, Any]], wanted: Case, derived: DerivedSource) -> bool:
    def equal(name: str, value: Any, row: dict[str, Any]) -> bool:  # noqa: ANN401
        if name.startswith("window_"):
            return iso(instant(row[name])) == iso(instant(value))
        got = row[name if name in row else column_of(name, derived)]
        return [str(v) for v in got] == value if isinstance(value, list) else str(got) == value

    return any(all(equal(n, v, row) for n, v in wanted.items()) for row in windows)
