"""Compute the rows of derived sources from the event logs of their bases."""
