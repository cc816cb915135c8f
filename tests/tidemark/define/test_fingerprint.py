"""Tests of fingerprints, which change only if counting, validation or publishing changes."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helpers.data.support import PER_MINUTE, READINGS
from tidemark import expect as q
from tidemark.define import aggregates as agg
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.rollup import rollup
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Count, Every, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import MonotonicTimestamps
from tidemark.define.windows import Calendar, Session, Sliding, Tumbling

KNOWN = frozenset({"a", "b", "c", "d", "e"})
FACTOR = 2
PATTERN = re.compile("a+")
WITHIN = timedelta(minutes=1)


def doubled(rows: DataFrame) -> DataFrame:
    return rows.withColumn("value", F.col("value") * FACTOR)


def prepare(rows: DataFrame) -> DataFrame:
    """Keep only known sensors."""
    kept = rows.where(F.col("sensor").isin({"x", "y", "z"} | KNOWN))
    return doubled(kept.where(F.col("sensor").rlike(PATTERN.pattern)))


@dataclass(frozen=True)
class OfMine(Tumbling):
    """Window class as a user would define it."""

    def __init__(self, size: str) -> None:
        super().__init__(size)

    def assign_windows(self, rows: DataFrame, event_time: str) -> DataFrame:
        return super().assign_windows(rows, event_time)


MADE = replace(
    PER_MINUTE,
    function=prepare,
    aggregates={
        **PER_MINUTE.aggregates,
        "spread": agg.python(
            "spread",
            "value",
            partial=lambda values: (min(values), max(values)) if values else None,
            merge=lambda parts: (min(p[0] for p in parts), max(p[1] for p in parts)),
            finish=lambda part: part[1] - part[0],
            partial_type="struct<low: double, high: double>",
            result_type="double",
        ),
        "best": agg.top_k("sensor", 2, max_values=50),
    },
    expectations=(
        q.between("most", max_value=0.9),
        q.matches_log(),
        q.volume_within(0.3, "yesterday"),
    ),
    trigger=Trigger(early=Every("10 seconds")),
    deduplicate=Deduplicate("sensor", "1 minute"),
)
WHOLE = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))


def spread(least: Callable[[list[Any]], Any]) -> agg.Aggregate:
    return agg.python(
        "spread",
        "value",
        partial=least,
        merge=least,
        finish=least,
        partial_type="double",
        result_type="double",
    )


def compiled(text: str, name: str = "f") -> FunctionType:
    """Return a function compiled from text, without a source file."""
    module: dict[str, Any] = {"__name__": "mine.module", "F": F}
    exec(compile(text, "<text>", "exec"), module)
    return module[name]


@pytest.mark.parametrize(
    "changed",
    [
        replace(PER_MINUTE, keys=()),
        replace(PER_MINUTE, window=Tumbling("2 minutes")),
        replace(PER_MINUTE, window=Sliding("1 minute", "1 minute")),
        replace(PER_MINUTE, window=Session("1 minute")),
        replace(PER_MINUTE, window=Calendar("day")),
        replace(PER_MINUTE, window=OfMine("1 minute")),
        replace(PER_MINUTE, allowed_lateness=0),
        replace(PER_MINUTE, aggregates={"n": agg.count()}),
        replace(PER_MINUTE, aggregates={**PER_MINUTE.aggregates, "n": agg.count("value > 0")}),
        replace(PER_MINUTE, trigger=Trigger(early=Count(5))),
        replace(PER_MINUTE, accumulation="discarding"),
        replace(PER_MINUTE, deduplicate=Deduplicate("sensor", "1 minute")),
        replace(PER_MINUTE, expectations=(q.matches_log(),)),
        replace(PER_MINUTE, function=prepare),
        replace(PER_MINUTE, source=replace(READINGS, name="others")),
    ],
    ids=lambda _: "",
)
def test_each_part_of_a_definition_is_in_its_fingerprint(changed: WindowedTransform) -> None:
    assert compute_fingerprint(changed) != compute_fingerprint(PER_MINUTE)


def test_details_of_parts_change_the_fingerprint() -> None:
    given = [
        replace(PER_MINUTE, expectations=(e,))
        for e in (
            q.matches_log(),
            q.matches_log(level="warning"),
            q.max_change_after_close(0.1),
            q.max_change_after_close(0.2),
            q.between("most", max_value=1),
            q.between("most", max_value=1.0),
            q.between("most", max_value=1, mostly=0.5),
        )
    ]
    given += [
        replace(PER_MINUTE, aggregates={"x": a})
        for a in (
            spread(lambda values: values[0]),
            spread(lambda values: values[1]),
            agg.sum("value"),
            agg.min("value"),
            agg.top_k("value", 1),
            agg.top_k("value", 2),
            agg.top_n("value", 2),
            agg.top_n("value", 2, by="sensor"),
            agg.last_n("value", 2),
            agg.Aggregate("sum(value)", lambda: F.lit(1), F.sum, lambda p: p),
            agg.Aggregate("sum(value)", lambda: F.lit(2), F.sum, lambda p: p),
        )
    ]
    assert len({compute_fingerprint(t) for t in given}) == len(given)


def test_changes_without_effect_on_results_keep_the_fingerprint() -> None:
    same = replace(
        PER_MINUTE,
        name="other",
        description="Told otherwise.",
        source=replace(
            READINGS,
            watermark=MonotonicTimestamps(),
            lookups=["never_taken"],
            columns={**READINGS.columns, "c": "int"},
        ),
        aggregates={n: PER_MINUTE.aggregates[n] for n in sorted(PER_MINUTE.aggregates)},
    )
    assert compute_fingerprint(same) == compute_fingerprint(PER_MINUTE)


TEXT = """
LEAST = 1

def helper(x, more=0):
    return x + LEAST + more

def f(rows):
    return helper(rows) if rows in {"a", "b", "c"} else [rows for _ in rows]
"""


def test_a_function_is_identified_by_its_code_and_references() -> None:
    def of(text: str) -> str:
        return compute_fingerprint(replace(PER_MINUTE, function=compiled(text)))

    told = TEXT.replace("(rows):", '(rows):\n    "Told."').replace(
        "LEAST = 1", "# Few\n\nLEAST = 1"
    )
    assert of(TEXT) == of(told) == of(f"{TEXT}\nOTHER = 5\n")
    changed = [
        TEXT,
        TEXT.replace("x + LEAST", "x - LEAST"),
        TEXT.replace("LEAST = 1", "LEAST = 2"),
        TEXT.replace("more=0", "more=1"),
        TEXT.replace("helper(rows)", "rows"),
        TEXT.replace('"b"', '"d"'),
        TEXT.replace("[rows", "[_"),
    ]
    assert len({of(each) for each in changed}) == len(changed)


def test_mutually_recursive_functions_have_a_fingerprint() -> None:
    text = "def f(rows):\n    return g(rows)\ndef g(rows):\n    return f(rows) if rows else f\n"
    first = replace(PER_MINUTE, function=compiled(text))
    assert compute_fingerprint(first) == compute_fingerprint(
        replace(PER_MINUTE, function=compiled(text))
    )


def test_a_roll_ups_fingerprint_changes_with_its_base() -> None:
    changed = replace(WHOLE, base=replace(PER_MINUTE, function=prepare))
    assert compute_fingerprint(changed) != compute_fingerprint(WHOLE)
    assert compute_fingerprint(
        replace(WHOLE, window=Tumbling("10 minutes"))
    ) != compute_fingerprint(WHOLE)


ELSEWHERE = """
import sys
from pyspark import cloudpickle
from tidemark.define.identity.fingerprint import compute_fingerprint
import test_fingerprint
from tidemark_assets.flights.transforms import departures_hourly

sent = cloudpickle.loads(sys.stdin.buffer.read())
for one in (*sent, test_fingerprint.MADE, test_fingerprint.WHOLE, departures_hourly):
    print(compute_fingerprint(one))
"""


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    from tidemark_assets.flights.transforms import departures_hourly

    ours = (MADE, WHOLE, departures_hourly)
    path = [*sys.path, str(Path(__file__).parent)]
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", ELSEWHERE],
            input=cloudpickle.dumps(ours),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            check=True,
        ).stdout.decode()
        assert told.split() == [compute_fingerprint(t) for t in ours] * 2
