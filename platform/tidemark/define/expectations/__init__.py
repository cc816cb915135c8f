"""Expectations: conditions on rows, which a run validates before it publishes the rows."""
