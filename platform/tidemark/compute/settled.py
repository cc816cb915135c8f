"""Which windows a commit can change."""

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.define.definition import Definition
from tidemark.store.coverage import Coverage
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges


def changing(transform: Definition, marker: Marker) -> Ranges:
    """The starts of the windows that a commit can change or begin; none is no bound.

    How far back a session begins is told by the commit before.
    """
    if marker.replaces_windows:
        return marker.ranges
    if transform.window.merges:
        return () if marker.changing_from is None else ((marker.changing_from, INFINITY),)
    return unsettled(transform, marker.before)


def unsettled(transform: Definition, before: Coverage) -> Ranges:
    """The starts of the windows that are not settled when an increment begins; none is no bound."""
    end = settled(transform, before)
    return () if end is None else ((max(end - transform.window.reach, BEGINNING), INFINITY),)


def settled(transform: Definition, before: Coverage) -> int | None:
    """The end, in microseconds, up to which windows are settled when an increment begins: no window
    that ended by then can admit an event of later arrivals. None: no window is."""
    watermark = before.at.watermark
    if watermark is None:
        return None
    # An event is judged by its own window, and may join those that ended a little before that.
    return max(watermark - transform.allowed_lateness - transform.window.joins, BEGINNING)
