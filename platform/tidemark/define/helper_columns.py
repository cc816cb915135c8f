"""Names of the helper columns that Tidemark adds to rows while it processes them.

They share a namespace with the user's columns, so all of them start with a prefix that no
definition accepts.
"""

PREFIX = "_tidemark_"


def name_helper(name: str) -> str:
    return f"{PREFIX}{name}"


def is_helper(column: str) -> bool:
    """Return whether a name is reserved for helper columns, ignoring case as the engine does."""
    return column.lower().startswith(PREFIX)


HAPPENED_AT = name_helper("happened_at")
"""The event time of an event, TIMESTAMP; null if it is missing or implausible."""
VERDICT = name_helper("verdict")
"""The lateness of an event in a window, TINYINT: a code of `classification`."""
ADMITTED = name_helper("admitted")
"""True if an event counts in a window, BOOLEAN."""
FIRST = name_helper("first")
"""True if the row's window is the one that ends first among all windows of its event, BOOLEAN. The
column exists only if windows overlap.
"""
FIRST_EVENTS = name_helper("first_events")
"""The number of a partial's events for which `FIRST` is true, BIGINT. The sum over all windows
counts each event once. The column exists only if windows overlap.
"""
SLOT = name_helper("slot")
"""The slot that an event joins in a window, BIGINT; `triggers.firings` defines slots."""
WATERMARK_BEFORE, WATERMARK_AFTER, CLOCK = map(name_helper, ("before", "reached", "clock"))
"""The watermark before and after an arrival, and its processing time, BIGINT microseconds."""
MARKER = name_helper("marker")
"""The description of a commit to the state (`CommitInfo`) as JSON, STRING; null in the rows of
partials.
"""
PHASE, FIRING, FIRED = map(name_helper, ("phase", "firing", "fired"))
"""The phase and the firing that a partial has joined, and the arrival at which its slot fired.
`compute.slot.select_fired` adds these columns and describes their values.
"""
IS_DELETED = name_helper("is_deleted")
"""True if a row is deleted from the published table, BOOLEAN."""
OBSERVED = name_helper("observed")
"""The value that an expectation observed for a missing window, STRING."""
