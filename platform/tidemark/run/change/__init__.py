"""Change published windows: rebuild a definition, and replay arrivals."""
