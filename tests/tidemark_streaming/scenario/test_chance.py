"""Scenarios by chance on a real engine: batch, and a stream in some cut, give what the oracle does.

The same few are drawn each time; raise `EXAMPLES` to look for more trouble.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from oracle import simulate as oracle
from random_scenarios import (
    AGAIN,
    CALENDAR,
    CUMULATING,
    GLOBAL,
    SESSIONS,
    SLIDING,
    TUMBLING,
    scenarios,
)
from tidemark.warehouse import Warehouse
from tidemark_streaming.scenario.compare import disagreement
from tidemark_streaming.scenario.parse import load
from tidemark_streaming.scenario.simulate import simulate

EXAMPLES = 2
KINDS: dict[str, dict[str, Any]] = {
    "tumbling": {"windows": TUMBLING},
    "sliding": {"windows": SLIDING},
    "cumulating": {"windows": CUMULATING},
    "calendar": {"windows": CALENDAR},
    "session": {"windows": SESSIONS},
    "global": {"windows": GLOBAL},
    "again": {"uniques": AGAIN},
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_comes_batch_and_stream_give_what_the_oracle_gives(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "scenario.yaml"

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        # To shrink what fails would take an hour; a scenario is small enough to be read.
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(told=scenarios(**KINDS[kind], most_rows=4), cut=st.integers(1, 4))
    def comes_out_right(told: dict[str, Any], cut: int) -> None:
        path.write_text(yaml.safe_dump(told))
        want = oracle(told)
        for arrivals_per_run in (None, cut):
            result = simulate(warehouse, load(path), arrivals_per_run)
            assert disagreement(want, result) == [], path.read_text()

    comes_out_right()
