"""Compute the rows of derived sources from the event logs of their bases.

`store.event_log.steps` defines the *steps* of a derived source, and a base's *effective watermark*.
"""
