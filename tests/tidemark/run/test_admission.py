"""Tests of limits on a run, which reports the limit that applied and loses no rows."""

import pytest

from helpers.data.runs import run_all
from helpers.data.support import PER_MINUTE, published, reference, renamed, some_arrivals
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.run.admission import ALL, Admission
from tidemark.run.runner import incremental
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.snapshot.snapshot import Snapshot


def waiting(*rows: int) -> list[Arrival]:
    """Return arrivals with the given numbers of rows, of 10 bytes each."""
    return [
        Arrival(n, 0, None, None, count, None, None, 10 * count, "{}")
        for n, count in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("admission", "taken", "by"),
    [
        (ALL, 4, None),
        (Admission(arrivals=9), 4, None),
        (Admission(arrivals=3), 3, "arrivals"),
        (Admission(rows=30), 4, None),
        (Admission(rows=29), 3, "rows"),
        # One is always taken, however large it is.
        (Admission(rows=4), 1, "rows"),
        (Admission(bytes=149), 1, "bytes"),
        (Admission(3, 15, 140), 1, "bytes"),
        (Admission(2, 16, 160), 2, "arrivals"),
    ],
    ids=str,
)
def test_the_first_arrivals_within_the_limits_are_taken(
    admission: Admission, taken: int, by: str | None
) -> None:
    some = waiting(5, 10, 0, 15)
    assert admission.admit_arrivals(some) == (some[:taken], by)


def test_a_limit_must_be_at_least_one() -> None:
    with pytest.raises(
        DefinitionError, match=r"limit of bytes in a run must be at least 1 \(got 0\)"
    ):
        Admission(bytes=0)
    assert ALL.admit_arrivals([]) == ([], None)
    assert Admission(1).admit_arrivals([]) == ([], None)
    assert Admission(rows=4).admit_arrivals(waiting(5)) == (waiting(5), None), "nothing is left"


# A run for each arrival.
@pytest.mark.slow
def test_rows_beyond_a_limit_wait_and_are_reported(logged: Warehouse, engine: Settings) -> None:
    asset = renamed(PER_MINUTE, "admitted")
    snapshot = Snapshot(engine.model_copy(update={"database": logged.database}), [asset])

    def left() -> str:
        return snapshot.read_asset(asset).waiting_text

    first = incremental(logged, asset, limit=Admission(rows=100))
    assert first is not None
    assert (first.through_arrival, first.limited_by) == (1, "rows")
    assert left() == "120 rows waiting, limited by rows"
    rest = run_all(logged, asset)
    assert [r.limited_by for r in rest] == [None]
    assert left() == "0 rows waiting"
    assert published(logged, asset) == reference(some_arrivals())
