"""Determine which windows a commit can change."""

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.definition import Definition
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import Ranges


def find_affected_range(transform: Definition, commit_info: CommitInfo) -> Ranges:
    """Return the ranges of the starts of the windows that a commit can change or create.

    Return an empty tuple if these can be all windows. For sessions, the previous commit records the
    start of the first session that can still change.
    """
    if commit_info.replaced_ranges is not None:
        return commit_info.replaced_ranges
    if transform.window.merges:
        if commit_info.changing_from is None:
            return ()
        return ((commit_info.changing_from, INFINITY),)
    return find_open_range(transform, commit_info.before)


def find_open_range(transform: Definition, coverage: Coverage) -> Ranges:
    """Return the ranges of the starts of windows that can still change when an increment begins.

    Return an empty tuple if all windows can.
    """
    end = find_closed_end(transform, coverage)
    if end is None:
        return ()
    return ((max(end - transform.window.max_extent, BEGINNING), INFINITY),)


def find_closed_end(transform: Definition, coverage: Coverage) -> int | None:
    """Return the instant, in microseconds, up to which windows are settled when an increment
    begins.

    A window that ends at this instant or earlier is settled: it can't admit an event of a later
    arrival. Return None if no window is settled.
    """
    watermark = coverage.at.watermark
    if watermark is None:
        return None
    # An event's lateness is classified by the event's own window, but the event may join a session
    # that ends up to a gap earlier.
    return max(watermark - transform.allowed_lateness - transform.window.merge_gap, BEGINNING)
