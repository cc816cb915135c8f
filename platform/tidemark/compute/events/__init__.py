"""Turn rows of an event log into events: prepared, protected, and deduplicated."""
