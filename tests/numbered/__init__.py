"""A domain for campaigns of faults: events that bear numbers, so that each can be asked after."""
