"""Sources whose events are computed from the event logs of other sources."""
