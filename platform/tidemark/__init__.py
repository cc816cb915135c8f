"""A stream is a log of arrivals; a run is a range of arrivals; batch is a run that ends."""

__version__ = "0.1.0"
