"""Store event logs: the events of a source by arrival, and the timeline of its arrivals."""
