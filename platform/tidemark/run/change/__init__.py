"""Change published windows: rebuild a definition, replay arrivals, and erase events."""
