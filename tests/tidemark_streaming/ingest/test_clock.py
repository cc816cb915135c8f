"""If the machine's clock jumps, events are counted as usual and arrival times never decrease."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.data.landing import HEADER, SOURCE, T0, clock, connector, land
from helpers.processes.clocks import shift_clock
from tidemark.base.instants import is_wait_over
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import Every, Trigger
from tidemark.define.watermarks import PerPartition
from tidemark.define.windows import Tumbling
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.ingest.ingest import end_source, ingest

IDLING = replace(SOURCE, watermark=PerPartition("sensor", "1 minute", idle="2 minutes"))
EVERY_MINUTE = WindowedTransform(
    name="every_minute",
    description="Readings by sensor and five minutes, told every minute.",
    source=IDLING,
    keys=("sensor",),
    window=Tumbling("5 minutes"),
    allowed_lateness=60_000_000,
    trigger=Trigger(early=Every("1 minute"), late=Every("1 minute")),
    accumulation="accumulating",
    aggregates={"readings": agg.count(), "total": agg.sum("value")},
    function=lambda rows: rows,
)
HOUR = 3600
JUMPS = [0, HOUR, -HOUR, 0, 3 * HOUR, -5 * HOUR]
"""Seconds by which the clock is off at each arrival. Arrivals are a minute apart."""


@pytest.mark.slow
def test_runs_over_clock_jumps_equal_a_batch(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, files = random.Random(3), replace(connector(tmp_path / "in"), source=IDLING)
    for number, jump in enumerate(JUMPS):
        at = number * 60
        rows = [f"{clock(at - chance.randrange(200))},{chance.choice('ab')},1" for _ in range(9)]
        land(tmp_path / "in", f"{number}.csv", HEADER + "\n".join(rows) + "\n", at + jump)
        if number == 1:
            list(ingest(warehouse, files, batch=None))
    land(tmp_path / "in", "straggler.csv", HEADER + f"{clock(-600)},a,1\n", 99 * HOUR)
    list(ingest(warehouse, files, batch=None))
    end_source(warehouse, IDLING)
    runs: list[RunFacts] = []
    for jump in (1, -2, 0):
        shift_clock(monkeypatch, jump)
        facts = incremental(warehouse, EVERY_MINUTE, limit=3)
        assert facts is not None
        runs.append(facts)
    assert incremental(warehouse, EVERY_MINUTE) is None

    timeline = Log(warehouse, IDLING).read_timeline()
    came = [a.arrived_at // 1_000_000 - T0 for a in timeline]
    assert came == [0, *[HOUR + 60] * 4, 3 * HOUR + 240, *[99 * HOUR] * 2]
    assert runs[0].ended_at > runs[1].started_at, "the clock was set back in between"
    assert [run.watermark for run in runs] == sorted(run.watermark or 0 for run in runs)
    assert sum(run.events for run in runs) == sum(a.rows for a in timeline) == 9 * len(JUMPS) + 1
    report = check_parity(warehouse, EVERY_MINUTE)
    assert report.is_equal, report.kinds


def test_a_wait_ends_if_it_began_in_the_future() -> None:
    assert [is_wait_over(10, 100, now) for now in (99, 100, 109, 110)] == [True, False, False, True]
