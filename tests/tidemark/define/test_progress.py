"""A silent base does not hold back a derived source, however many bases are silent."""

from dataclasses import replace
from itertools import permutations

import pytest

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import join
from tidemark.define.derived.progress import Progress
from tidemark.define.derived.union import union
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Tumbling

MINUTE = 60_000_000
HOUR = 60 * MINUTE
BASES = [
    Source(
        name=name,
        columns={"at": "TIMESTAMP", "k": "STRING", f"of_{name}": "STRING"},
        event_time="at",
        watermark=BoundedOutOfOrderness("1 minute"),
        heartbeat="1 minute",
    )
    for name in ("clicks", "orders", "rates")
]
CLICKS, ORDERS, RATES = BASES
ALL = union(name="everything", of=BASES, idle="10 minutes")
PRICED = asof_join(
    name="priced",
    left=ORDERS,
    right=RATES,
    on=["k"],
    rename={"rates.at": "valid_from"},
    idle="10 minutes",
)


def started(source: DerivedSource) -> Progress:
    """Return the progress after one arrival of each base, whose watermarks are at 1, 2, 3 hours."""
    progress = Progress(source)
    for number, base in enumerate(source.base_sources):
        assert progress.take_arrival(base.name, (number + 1) * HOUR, 0, None) is None
    return progress


@pytest.mark.parametrize("active", ["clicks", "orders", "rates"])
def test_several_silent_bases_follow_the_only_one_that_is_active(active: str) -> None:
    progress = started(ALL)
    silent = [base.name for base in BASES if base.name != active]
    for hour in range(4, 26):
        progress.take_arrival(active, hour * HOUR, hour * HOUR, None)
        for base in silent:
            progress.take_arrival(base, None, hour * HOUR + 1, 0)
        # Both have become silent before the second heartbeat of either.
        if hour > 4:
            assert progress.derived_watermark == hour * HOUR
            assert progress.idle_bases == set(silent)
    assert progress.silent_since is None


@pytest.mark.parametrize("order", list(permutations(["clicks", "orders", "rates"])))
def test_if_all_bases_are_silent_each_reaches_the_newest_watermark(order: tuple[str, ...]) -> None:
    progress = started(ALL)
    for clock in (HOUR, 2 * HOUR):
        for number, base in enumerate(order):
            progress.take_arrival(base, None, clock, number)
    assert progress.reached == dict.fromkeys(progress.reached, 3 * HOUR)
    assert progress.silent_since == 2
    # A base with data is not idle, and holds the others back again.
    progress.take_arrival("orders", 3 * HOUR, 3 * HOUR, None)
    progress.take_arrival("rates", 4 * HOUR, 3 * HOUR, None)
    assert (progress.idle_bases, progress.silent_since) == ({"clicks"}, None)
    assert progress.take_arrival("clicks", None, 4 * HOUR, 0) is None
    assert progress.derived_watermark == 3 * HOUR


def test_a_base_that_has_ended_neither_holds_back_nor_raises_others() -> None:
    progress = started(ALL)
    progress.take_arrival("rates", INFINITY, HOUR, None)
    assert progress.take_arrival("clicks", None, HOUR, 0) == 2 * HOUR
    progress.take_arrival("orders", INFINITY, HOUR, None)
    assert progress.take_arrival("clicks", None, 2 * HOUR, 0) is None
    assert progress.derived_watermark == 2 * HOUR
    assert (progress.silent_since, progress.holding_bases) == (0, ("clicks",))
    progress.take_arrival("clicks", INFINITY, HOUR, None)
    assert (progress.silent_since, progress.holding_bases) == (None, ())


def test_a_base_without_events_holds_back_until_it_is_silent() -> None:
    progress = Progress(ALL)
    progress.take_arrival("clicks", HOUR, 0, None)
    progress.take_arrival("orders", 2 * HOUR, 0, None)
    assert (progress.derived_watermark, progress.holding_bases) == (None, ("rates",))
    assert progress.take_arrival("rates", None, 9 * MINUTE, 0) is None
    assert progress.take_arrival("rates", None, 10 * MINUTE, 0) == HOUR
    assert progress.holding_bases == ("clicks", "rates")


def test_versions_that_change_rarely_do_not_hold_back_an_as_of_join() -> None:
    progress = started(PRICED)
    progress.take_arrival("orders", 9 * HOUR, 9 * HOUR, None)
    assert progress.holding_bases == ("rates",)
    assert progress.take_arrival("rates", None, 9 * HOUR, 0) == 9 * HOUR
    # Without its own heartbeat, it does not follow the orders.
    progress.take_arrival("orders", 11 * HOUR, 9 * HOUR, None)
    assert (progress.derived_watermark, progress.holding_bases) == (9 * HOUR, ("rates",))


def test_the_base_whose_wait_is_longest_holds_back_a_join() -> None:
    within = Tumbling("1 hour")
    pairs = join(
        name="pairs",
        left=CLICKS,
        right=ORDERS,
        on=["k"],
        within=within,
        how="left",
        rename={"orders.at": "ordered_at"},
    )
    progress = Progress(pairs)
    progress.take_arrival("clicks", 5 * HOUR, 0, None)
    progress.take_arrival("orders", 5 * HOUR + 30 * MINUTE, 0, None)
    assert progress.holding_bases == ("orders",)


def test_a_derived_base_has_heartbeats_if_all_its_bases_have() -> None:
    mute = [replace(base, heartbeat=None) for base in BASES]
    both = union(name="both", of=[CLICKS, ORDERS])
    assert union(name="more", of=[both, mute[2]], idle="1 minute").idle == MINUTE
    half = union(name="half", of=[CLICKS, mute[1]])
    said = r"^Derived source 'more': idle has no effect, because 'orders' and 'rates' record no "
    with pytest.raises(DefinitionError, match=said):
        union(name="more", of=[half, mute[2]], idle="1 minute")
