"""Determine which windows a commit can change."""

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.definition import Definition
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import Ranges


def affected_range(transform: Definition, marker: CommitInfo) -> Ranges:
    """Return the starts of the windows that a commit can change or create; empty means no bound.

    For sessions, the previous commit records the start of the first one that can still change.
    """
    if marker.replaced is not None:
        return marker.replaced
    if transform.window.merges:
        return () if marker.changing_from is None else ((marker.changing_from, INFINITY),)
    return open_range(transform, marker.before)


def open_range(transform: Definition, before: Coverage) -> Ranges:
    """Return the starts of the windows that can still change when an increment begins.

    Empty means no bound.
    """
    end = closed_end(transform, before)
    return () if end is None else ((max(end - transform.window.max_extent, BEGINNING), INFINITY),)


def closed_end(transform: Definition, before: Coverage) -> int | None:
    """Return the instant, in microseconds, up to which windows are settled when an increment
    begins.

    A window that ended by then is settled: it can't admit an event of a later arrival. None means
    that no window is settled.
    """
    watermark = before.at.watermark
    if watermark is None:
        return None
    # An event's lateness is classified by its own window, but it may join a session that ended up
    # to a gap earlier.
    return max(watermark - transform.allowed_lateness - transform.window.merge_gap, BEGINNING)
