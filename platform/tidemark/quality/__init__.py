"""Quality gates: validate the rows that a run is about to publish.

Expectations are declared with a transform. All runs (backfill, incremental or continuous) validate
the rows that they are about to publish. A row that fails an expectation of level `error` goes to
quarantine; every other row is published. Every result is a row of the table `checks`.

A run calls the module `gate`. The module `quarantine` implements the commands for quarantined rows.
"""
