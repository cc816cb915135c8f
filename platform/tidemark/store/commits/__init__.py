"""What a commit covers: arrivals, windows, and ranges of event time."""
