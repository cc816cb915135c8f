"""Each kind of commit determines what it replaces, and is stored with its own fields only."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.define.identity.parts import Part
from tidemark.store.commits.commit_info import CommitInfo, StateCommit, drop_superseded
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.kinds import (
    NO_COMMIT,
    Cause,
    Following,
    Increment,
    Promotion,
    Replacement,
    Rollback,
    SessionReplacement,
    from_json,
    to_json,
)
from tidemark.store.commits.ranges import Ranges

SOME: Ranges = ((0, 10), (20, 30))
BACKFILL, SWAP = Cause.BACKFILL, {"visits": ("visits__rebuild", 3)}

INSTANT = st.integers(-(2**63), 2**63 - 1)
POSITION = st.builds(TimelinePosition, st.integers(-1, 2**40), st.none() | INSTANT, INSTANT)
COVERAGE = st.builds(
    Coverage,
    POSITION,
    st.lists(st.builds(BackfilledRange, INSTANT, INSTANT, POSITION), max_size=3).map(tuple),
    st.booleans(),
)
RANGES = st.lists(st.tuples(INSTANT, INSTANT), max_size=3).map(tuple)
FIELDS = {
    "run": st.text(),
    "started": INSTANT,
    "before": COVERAGE,
    "after": COVERAGE,
    "parts": st.none() | st.dictionaries(st.text(), st.builds(Part, st.text(), st.text())),
    "open_from": st.none() | INSTANT,
    "open_before": st.none() | INSTANT,
    "ranges": RANGES,
    "complete": st.booleans(),
    "cause": st.sampled_from(Cause),
    "taken": st.dictionaries(st.text(), st.tuples(st.text(), st.integers(0))),
    "kept": st.dictionaries(st.text(), st.integers(0)),
}


def commits_of(kind: type[StateCommit]) -> st.SearchStrategy[StateCommit]:
    known = {f.name: FIELDS[f.name] for f in fields(kind) if f.name in FIELDS}
    return st.builds(kind, commit_number=st.integers(-1, 2**40), **known)


KINDS = (Increment, Replacement, SessionReplacement, Promotion, Rollback)


@given(st.one_of([commits_of(kind) for kind in KINDS]))
def test_a_stored_commit_is_read_back_as_it_was(commit: StateCommit) -> None:
    text = to_json(commit)
    read = from_json(text)
    assert (type(read), read) == (type(commit), commit)
    assert {*json.loads(text)} == {"kind"} | {f.name for f in fields(commit)}


@pytest.mark.parametrize(
    ("commit", "recomputed", "replaced"),
    [
        (Increment(), None, None),
        (Replacement(cause=BACKFILL), (), ()),
        (Replacement(cause=BACKFILL, ranges=SOME), SOME, SOME),
        (SessionReplacement(cause=BACKFILL, ranges=SOME), SOME, None),
        (Promotion(taken=SWAP, kept={}), (), ()),
        (Rollback(taken=SWAP), (), ()),
        (Following(), None, None),
        (Following(ranges=SOME), SOME, SOME),
    ],
)
def test_windows_that_a_commit_recomputes_and_replaces(
    commit: CommitInfo, recomputed: Ranges | None, replaced: Ranges | None
) -> None:
    assert (commit.recomputed_ranges, commit.replaced_ranges) == (recomputed, replaced)


def test_the_first_commit_of_a_state_overwrites_rows_of_earlier_states() -> None:
    for number, overwritten in ((0, ()), (1, None)):
        assert Increment(commit_number=number).overwritten_ranges == overwritten
    for number, overwritten in ((0, ()), (1, SOME)):
        replacement = Replacement(cause=BACKFILL, ranges=SOME, commit_number=number)
        assert replacement.overwritten_ranges == overwritten
    # A roll-up has no state, so its commit 0 is not the first of its table.
    assert Following(commit_number=0).overwritten_ranges is None


def test_a_commit_that_replaces_all_rows_supersedes_the_earlier_ones() -> None:
    commits = [
        Increment(commit_number=0),
        Replacement(cause=BACKFILL, commit_number=1),
        SessionReplacement(cause=BACKFILL, ranges=SOME, commit_number=2),
        Increment(commit_number=3),
    ]
    assert [c.commit_number for c in drop_superseded(commits)] == [1, 2, 3]
    swapped = [*commits, Rollback(taken=SWAP, commit_number=4)]
    assert [c.commit_number for c in drop_superseded(swapped)] == [4]
    assert drop_superseded([NO_COMMIT]) == [NO_COMMIT]


def test_the_position_of_a_range_backfill_is_that_of_its_windows() -> None:
    at, ahead = TimelinePosition(3), TimelinePosition(9, 90, 900)
    after = Coverage(at).with_backfill(BackfilledRange(0, 10, ahead))
    assert Replacement(cause=BACKFILL, after=after, ranges=((0, 10),)).furthest_position == ahead
    assert Replacement(cause=BACKFILL, after=after, ranges=((10, 20),)).furthest_position == at
    assert Increment(after=after).furthest_position == at
