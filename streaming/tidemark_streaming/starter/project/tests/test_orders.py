"""Test the windows of given arrivals: late and too-late events, in any division into runs."""

from tidemark_streaming.testing import Trials

from shop.transforms import orders_hourly


def order(at: str, amount: float) -> dict[str, object]:
    """Return an event on the first day of 2026."""
    return {"ordered_at": f"2026-01-01 {at}", "city": "york", "amount": amount}


def test_a_late_event_counts_and_one_too_late_does_not(tidemark_scenario: Trials) -> None:
    arrivals = [
        [order("09:10", 3), order("10:30", 1)],
        [order("09:59", 4)],
        [order("12:00", 1)],
        [order("09:30", 5)],
    ]
    tidemark_scenario(orders_hourly, arrivals).expect(
        windows=[
            {"window_start": "2026-01-01 09:00", "total": 7, "timing": "LATE", "final": True},
            {"window_start": "2026-01-01 10:00", "total": 1, "timing": "ON_TIME"},
            {"window_start": "2026-01-01 12:00", "total": 1, "timing": "ON_TIME"},
        ],
        late=[{"ordered_at": "2026-01-01 09:30", "window_end": "2026-01-01 10:00"}],
    )


def test_no_cut_into_runs_changes_what_comes_out(tidemark_scenario: Trials) -> None:
    hours = [[order(f"{hour:02}:00", hour)] for hour in range(4)]
    tidemark_scenario(orders_hourly, hours).same_in_any_cut(others=1)
