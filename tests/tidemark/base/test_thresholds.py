"""Each threshold names its unit, and a benchmark that exists."""

import re
from pathlib import Path

import pytest

from tidemark.base import thresholds

ROOT = Path(__file__).parents[3]
NAMES = [name for name in vars(thresholds) if name.isupper()]
UNITS = {
    *("ROWS", "RECORDS", "WINDOWS", "PARTIALS", "EVENTS", "ARRIVALS", "RANGES"),
    *("BYTES", "FILES", "COMMITS", "VERSIONS", "DIVISOR"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_threshold_is_a_number_with_a_unit(name: str) -> None:
    assert getattr(thresholds, name) > 0
    assert name.rpartition("_")[2] in UNITS


def test_the_named_benchmarks_exist() -> None:
    source = Path(thresholds.__file__).read_text()
    named = set(re.findall(r"`benchmarks(?:\.(\w+))?", source))
    assert named
    assert all((ROOT / "benchmarks" / f"{name or '__main__'}.py").exists() for name in named)
