"""Changes of windows from one version of the change data feed."""

import pyarrow as pa
import pytest

from tidemark.base.instants import as_datetime
from tidemark_streaming.sink.changes import derive_changes, rows_as_changes

Told = tuple[str, int, int]
"""A row of the change data feed: the change type, the window's start, its value."""


def feed(*rows: Told) -> pa.Table:
    return pa.table(
        {
            "_change_type": [kind for kind, _, _ in rows],
            "_commit_version": [1] * len(rows),
            "window_start": pa.array([s for _, s, _ in rows], pa.timestamp("us", "UTC")),
            "n": pa.array([n for _, _, n in rows], pa.int64()),
        }
    )


def row(start: int, n: int) -> dict[str, object]:
    return {"window_start": as_datetime(start), "n": n}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([("insert", 0, 1), ("insert", 60, 2)], [(None, row(0, 1)), (None, row(60, 2))]),
        ([("delete", 0, 1), ("delete", 60, 2)], [(row(0, 1), None), (row(60, 2), None)]),
        (
            [("update_preimage", 0, 1), ("update_postimage", 0, 3), ("insert", 60, 2)],
            [(row(0, 1), row(0, 3)), (None, row(60, 2))],
        ),
        ([("delete", 0, 1), ("insert", 0, 1)], []),
        ([], []),
    ],
    ids=["all come", "all leave", "one is replaced", "one stays the same", "nothing"],
)
def test_inserted_deleted_and_replaced_windows_are_derived(
    told: list[Told], expected: list[tuple[object, object]]
) -> None:
    found = [(c.before, c.after) for c in derive_changes(feed(*told), ["window_start"])]
    assert found == expected


def test_a_row_that_is_replaced_by_an_identical_one_is_not_a_change() -> None:
    nan = float("nan")
    values = [nan, [nan, None, 1.0], {"x": nan, "y": [nan]}, 0.0, "NaN", None]
    same = feed(*[(kind, n, 1) for n in range(len(values)) for kind in ("delete", "insert")])
    for n, value in enumerate(values):
        # Each value is another object, as in a table that was read.
        own = pa.table({"v": pa.array([value, value])})
        rows = same.slice(2 * n, 2).append_column("v", own["v"])
        assert list(derive_changes(rows, ["window_start"])) == []
        changed = same.slice(2 * n, 2).append_column(
            "v", pa.array([value, None] if value is not None else [None, 1])
        )
        assert len(list(derive_changes(changed, ["window_start"]))) == 1


def test_an_instant_beyond_the_years_of_python_is_a_string() -> None:
    far = 1_700_000_000_000_000_000
    rows = feed(("insert", 0, 1), ("delete", 60, 2))
    rows = rows.append_column("newest", pa.array([far, far], pa.timestamp("us", "UTC")))
    found = list(derive_changes(rows, ["window_start"]))
    texts = [(c.after or c.before or {})["newest"] for c in found]
    assert texts == ["55840-11-08T22:13:20.000000Z"] * 2
    assert [(c.after or {})["newest"] for c in rows_as_changes(rows)] == texts
