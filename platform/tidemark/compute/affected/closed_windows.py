"""Determine which windows a commit can change."""

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.definition import Definition
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import Ranges


def affected_range(transform: Definition, commit_info: CommitInfo) -> Ranges:
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
    return open_range(transform, commit_info.before)


def open_range(transform: Definition, before: Coverage) -> Ranges:
    """Return the ranges of the starts of windows that can still change when an increment begins.

    Return an empty tuple if all windows can.
    """
    end = closed_end(transform, before)
    if end is None:
        return ()
    return ((max(end - transform.window.max_extent, BEGINNING), INFINITY),)


def closed_end(transform: Definition, before: Coverage) -> int | None:
    """Return the instant, in microseconds, up to which windows are settled when an increment
    begins.

    A window that ends at this instant or earlier is settled: it can't admit an event of a later
    arrival. Return None if no window is settled.
    """
    watermark = before.at.watermark
    if watermark is None:
        return None
    # An event's lateness is classified by the event's own window, but the event may join a session
    # that ends up to a gap earlier.
    return max(watermark - transform.allowed_lateness - transform.window.merge_gap, BEGINNING)
