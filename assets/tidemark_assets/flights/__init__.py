"""Flights of 2013 from New York's airports: the domain to copy for one's own."""
