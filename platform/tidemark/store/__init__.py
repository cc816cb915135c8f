"""Storage layer: the warehouse, event logs, asset states, the run ledger, and commits."""
