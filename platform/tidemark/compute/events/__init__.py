"""From the rows of an event log to events: prepared, protected, and deduplicated."""
