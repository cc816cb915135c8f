"""Names of the helper columns that Tidemark adds to rows while it processes them.

They share a namespace with the user's columns, so all of them start with a prefix that no
definition accepts.
"""

PREFIX = "_tidemark_"


def helper(name: str) -> str:
    return f"{PREFIX}{name}"


def is_helper(column: str) -> bool:
    """Return whether a name is reserved for helper columns; the engine ignores its case."""
    return column.lower().startswith(PREFIX)


HAPPENED_AT = helper("happened_at")
"""The event time of an event, TIMESTAMP; null if it is missing or implausible."""
VERDICT = helper("verdict")
"""The lateness of an event in a window, TINYINT: a code of `classification`."""
ADMITTED = helper("admitted")
"""Whether an event counts in a window, BOOLEAN."""
FIRST = helper("first")
"""Whether a window is the first of its event's windows to end, BOOLEAN, if windows overlap."""
FIRST_EVENTS = helper("first_events")
"""The number of events in a partial whose first window to end is the partial's, BIGINT, if windows
overlap.
"""
SLOT = helper("slot")
"""The slot of an event in a window, BIGINT."""
WATERMARK_BEFORE, WATERMARK_AFTER, CLOCK = map(helper, ("before", "reached", "clock"))
"""The watermark before and after an arrival, and its processing time, BIGINT microseconds."""
MARKER = helper("marker")
"""The facts of a commit of the state (`CommitInfo`) as JSON, STRING; null in rows of partials."""
PHASE, FIRING, FIRED = map(helper, ("phase", "firing", "fired"))
"""The firing that a partial has joined, and the arrival at which it fired (`slot.select_fired`)."""
IS_DELETED = helper("is_deleted")
"""Whether a row is deleted from the published table, BOOLEAN."""
OBSERVED = helper("observed")
"""The value that an expectation observed for a missing window, STRING."""
