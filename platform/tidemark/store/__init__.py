"""Tables: the warehouse, logs, states, the ledger, and who commits to them."""
