"""The home: its domains, its background processes, and erasures across all of its tables."""
