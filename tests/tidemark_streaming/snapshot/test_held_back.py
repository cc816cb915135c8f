"""The base that holds back a derived source is a function of the bases' timelines."""

import random
from dataclasses import replace

import pytest

from tidemark.base.instants import INFINITY, parse_duration
from tidemark.define.derived.derived_source import DerivedSource
from tidemark_streaming.snapshot.held_back import PATIENCE, BaseProgress, find_slow_base
from till.sources import located_payments, movements, paid_orders

HOUR = parse_duration("1 hour")
DERIVED = [paid_orders, movements, located_payments]


def slow_base(source: DerivedSource, progress: dict[str, BaseProgress]) -> str | None:
    """Return the base that holds back a source that has taken all arrivals of its bases."""
    marks = [progress[base.name].watermark for base in source.base_sources]
    held = find_slow_base(source, source.watermark_of(marks), progress)
    return None if held is None else held.base


@pytest.mark.parametrize("source", DERIVED, ids=lambda source: source.name)
def test_only_the_base_without_new_events_holds_back(source: DerivedSource) -> None:
    generator = random.Random(34)
    for _ in range(200):
        names = [base.name for base in source.base_sources]
        slow, fast = generator.sample(names, 2)
        newest = generator.randrange(100 * HOUR, 200 * HOUR)
        gap = generator.randrange(2 * PATIENCE, 50 * PATIENCE)
        bound = generator.randrange(PATIENCE // 2)
        quick = BaseProgress(newest - bound, newest)
        # The join waits for an interval after a payment, which is less than the gap.
        late = BaseProgress(newest - gap - bound, newest - gap)
        assert slow_base(source, {slow: late, fast: quick}) == slow
        near = BaseProgress(quick.watermark, newest - generator.randrange(PATIENCE))
        assert slow_base(source, {slow: near, fast: quick}) is None
        assert (
            slow_base(source, {slow: BaseProgress(INFINITY, late.newest_event), fast: quick})
            is None
        )
        silent = BaseProgress(None, None)
        assert slow_base(source, {slow: silent, fast: quick}) == slow
        assert slow_base(source, {slow: silent, fast: silent}) is None


@pytest.mark.parametrize("source", DERIVED, ids=lambda source: source.name)
def test_a_source_that_only_lacks_arrivals_is_not_held_back(source: DerivedSource) -> None:
    progress = {
        base.name: BaseProgress(100 * HOUR + n * 10 * HOUR, 100 * HOUR + n * 10 * HOUR)
        for n, base in enumerate(source.base_sources)
    }
    assert find_slow_base(source, 50 * HOUR, progress) is None
    assert find_slow_base(source, None, progress) is None


def test_a_raised_effective_watermark_ends_the_wait() -> None:
    """A silent base that no longer holds the watermark back is not reported."""
    progress = {
        "orders": BaseProgress(100 * HOUR, 100 * HOUR),
        "payments": BaseProgress(2 * HOUR, 2 * HOUR),
    }
    source = replace(movements, idle=HOUR)
    assert find_slow_base(source, 100 * HOUR, progress) is None
    held = find_slow_base(source, 2 * HOUR, progress)
    assert held is not None
    assert (held.base, held.waiting_base, held.waiting_newest) == ("payments", "orders", 100 * HOUR)
