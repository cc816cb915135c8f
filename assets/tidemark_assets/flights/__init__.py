"""Flights of 2013 from New York's airports: an example domain to copy."""
