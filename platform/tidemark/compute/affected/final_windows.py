"""Determine which windows a commit can change, from the watermark before the commit.

A window is *final* here when no later arrival can change it: when the watermark has passed the
window's end by the allowed lateness, and for sessions also by the gap. The column `final` of
published sessions does not wait for the gap (`compute.slot.final_watermark`).
"""

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.definition import Definition
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.coverage import Coverage
from tidemark.store.commits.ranges import ALL_WINDOWS, Ranges


def find_affected_range(definition: Definition, commit_info: CommitInfo) -> Ranges:
    """Return the ranges of the starts of the windows that a commit can change or create.

    Return `ALL_WINDOWS` if these can be all windows. An increment can change the windows that were
    not final before it. For sessions, the previous commit records the start of the first session
    that is not final.
    """
    if commit_info.replaced_ranges is not None:
        return commit_info.replaced_ranges
    if definition.window.merges:
        if commit_info.changing_from is None:
            return ALL_WINDOWS
        return ((commit_info.changing_from, INFINITY),)
    return find_changeable_range(definition, commit_info.before)


def find_changeable_range(definition: Definition, coverage: Coverage) -> Ranges:
    """Return the range of the starts of windows that are not final when an increment begins.

    The range may also contain the starts of some final windows. Return `ALL_WINDOWS` if no
    window is final.

    Args:
        coverage: the coverage before the increment.
    """
    end = find_final_end(definition, coverage)
    if end is None:
        return ALL_WINDOWS
    return ((max(end - definition.window.max_extent, BEGINNING), INFINITY),)


def find_final_end(definition: Definition, coverage: Coverage) -> int | None:
    """Return the latest end of windows that are final when an increment begins, in microseconds.

    Each window that ends at this instant or earlier is final. Return None if the source has no
    watermark yet, so that no window is final.

    Args:
        coverage: the coverage before the increment.
    """
    watermark = coverage.at.watermark
    if watermark is None:
        return None
    # An event's lateness is classified by the event's own window, but the event may join a session
    # that ends up to a gap earlier.
    return max(watermark - definition.allowed_lateness - definition.window.merge_gap, BEGINNING)
