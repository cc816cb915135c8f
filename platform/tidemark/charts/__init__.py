"""Pictures of arrivals and windows."""
